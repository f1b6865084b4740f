"""Callers of a Powerhose listener: their requests and responses."""

from __future__ import annotations

import pytest

from dragoman.core.policy import Policy
from dragoman.dialects.frontend import FRONTEND

from .world import (
    ERROR,
    MAX_PAYLOAD,
    PING,
    SECOND,
    World,
    fields,
)


def test_a_job_waits_for_queue_timeout_and_then_its_caller_is_told() -> None:
    world = World()
    caller = world.call()
    world.wait(9.9)
    assert caller.told() == []
    world.wait(0.1)
    assert caller.told() == [b"timed out: no worker was free within 10 s"]


def test_all_busy_waits_for_queue_timeout_too() -> None:
    world = World(queue_timeout=3)
    bench, first = world.busy()
    second = world.call(b"next")
    world.wait(3)
    assert second.ending() == "timed out"
    bench.finish()
    assert first.told() == [b"result"]


@pytest.mark.parametrize("kind", ["REQ", "DEALER"])
def test_callers_are_req_or_dealer_sockets(kind: str) -> None:
    world = World()
    bench = world.worker()
    end = world.connect(FRONTEND, kind=kind)
    end.say(b"", b"job")
    bench.work()
    assert end.messages() == [[b"", b"result"]]


def test_an_ending_is_told_as_in_pingpong() -> None:
    world = World(attempts=1)
    bench, caller = world.busy()
    bench.die()
    assert caller.end.messages() == [[b"", b"", ERROR, b"lost: its worker's connection ended"]]


def test_a_job_over_max_payload_is_refused() -> None:
    world = World()
    caller = world.call(bytes(MAX_PAYLOAD + 1))
    (told,) = caller.told()
    assert told == b"refused: payload of 10001 bytes is over max_payload 10000"
    assert world.counters.refused == 1


@pytest.mark.parametrize("frames", [(b"job",), (b"x", b"job"), (b"", b"a", b"b")])
def test_a_call_of_another_shape_is_counted_and_not_answered(frames: tuple[bytes, ...]) -> None:
    world = World()
    caller = world.caller()
    caller.end.say(*frames)
    assert caller.told() == []
    assert sum(world.bad.values()) == 1
    assert world.counters.accepted == 0


def test_words_of_workers_are_jobs_at_the_frontend() -> None:
    world = World()
    bench = world.worker()
    caller = world.call(fields(PING, SECOND))
    assert bench.work() == fields(PING, SECOND)
    assert caller.told() == [b"result"]
    assert world.state(SECOND) == "unknown"


def test_a_busy_broker_refuses() -> None:
    world = World(policy=Policy(max_jobs=1))
    world.call()
    caller = world.call(b"next")
    assert caller.ending() == "refused"
