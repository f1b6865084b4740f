"""Invalid messages to a MemoDB listener, and routes of requests: R77 to R79."""

from __future__ import annotations

import pytest

from .world import (
    DISCONNECT,
    World,
    answered,
    given,
    header,
    heartbeat,
    job,
    ready,
    result,
)

GARBAGE = {
    "nothing": (b"", "truncated header"),
    "not cbor": (b"\xff\xff", "not a memo01 header"),
    "a text": (b"GET / HTTP/1.1\r\n\r\n", "not a memo01 header"),
    "short array": (header(), "missing field"),
    "wrong version": (b"\x83\x66memo02\x04\x40", "wrong version"),
    "unknown type": (header(6, b""), "unknown type"),
    "type 0": (header(0, b""), "unknown type"),
    "disconnect": (header(DISCONNECT, b"x" * 16), "not for us"),
    "payload behind heartbeat": (heartbeat(b"x" * 16) + b"!", "unwanted payload"),
    "payload behind ready": (ready() + b"!", "unwanted payload"),
    "id is a text": (header(4, "x" * 16), "wrong field"),
    "heartbeat with a field": (header(4, b"x" * 16, True), "extra field"),
    "result with two flags": (header(3, b"x" * 16, True, True), "extra field"),
    "result with a flag of 1": (header(3, b"x" * 16, 1), "wrong field"),
    "ready without services": (header(1, b""), "missing field"),
    "job without timeout": (header(2, b"", "echo"), "missing field"),
    "indefinite": (b"\x9f\x66memo01\x04\x40\xff", "not a memo01 header"),
    "header too long": (header(4, b"x" * 70_000), "header too long"),
    "ready with an id": (ready(id=b"x" * 16), "unwanted id"),
    "job with an id": (job(id=b"x" * 16), "unwanted id"),
}


@pytest.mark.parametrize("name", list(GARBAGE))
def test_r77_d6_an_invalid_message_is_met_with_silence_and_counted(name: str) -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    body, reason = GARBAGE[name]
    assert side.ask(2, body) == []
    assert world.counters.bad_messages == {("memodb", reason): 1}
    assert not side.is_lost
    assert world.state(id) == "busy"
    assert side.ask(3, result(id)) == []
    assert caller.heard() == answered(501)


def test_r77_twenty_in_ten_seconds_close_the_connection() -> None:
    world = World()
    side, other = world.connect(), world.connect()
    id = world.worker(side)
    for request in range(10, 29):
        side.ask(request, b"garbage")
    assert not side.is_lost
    side.ask(99, b"garbage")
    assert side.is_lost
    assert world.state(id) == "detached"
    assert not other.is_lost
    assert world.bad == {"not a memo01 header": 20}


def test_r77_nineteen_in_ten_seconds_do_not() -> None:
    world = World()
    side = world.connect()
    for _ in range(5):
        for request in range(19):
            side.ask(request, b"garbage")
        world.wait(10.1)
    assert not side.is_lost


def test_r79_up_to_eight_words_of_a_route_come_back_unchanged() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    hops = (1, 2, 3, 4, 5, 6, 0x7FFF_FFFF)
    side.ask(1, ready(), *hops)
    ((id, remote),) = world.session._remotes.items()
    assert len(remote.route) == 32
    caller.ask(7, job(), 42)
    assert side.heard() == given(1, id)
    side.ask(2, result(id), *hops)
    assert caller.heard() == answered(7)
    assert [len(route) for route in side.told] == [32]
    assert [len(route) for route in caller.told] == [8]


def test_r79_more_words_are_met_with_silence() -> None:
    world = World()
    side = world.connect()
    assert side.ask(1, ready(), *range(1, 9)) == []
    assert world.bad == {"no request id": 1}
    assert world.workers == 0


def test_r79_the_same_request_id_behind_different_hops_is_another_request() -> None:
    world = World()
    side = world.connect()
    side.ask(1, ready(), 1)
    side.ask(1, ready(), 2)
    side.ask(2, job(), 1)
    side.ask(2, job(), 2)
    assert world.workers == 2
    assert world.counters.accepted == 2
