"""Endpoints of Powerhose workers: allowed ones, conflicts, and dials (R51 to R53)."""

from __future__ import annotations

import os
import socket
from itertools import pairwise
from pathlib import Path

import pytest

from dragoman.core.options import JobOptions
from dragoman.core.policy import Policy
from dragoman.dialects.powerhose.broker_side import BACKEND, WORKERS_KEPT
from dragoman.server.dial_policy import DialPolicy

from .world import (
    ELSEWHERE,
    ERROR,
    FIRST,
    FORBIDDEN,
    HOME,
    PING,
    PONG,
    REMOVE,
    REMOVED,
    Nobody,
    World,
    fields,
)

# -------------------------------------------------------------------- R51: where we may be sent


def test_r51_an_endpoint_that_is_not_allowed_is_an_error_counted_logged_and_never_dialled() -> None:
    world = World()
    bench = world.bench(FORBIDDEN)
    assert bench.ping() == [ERROR]
    assert world.dialled == []
    assert world.session._remotes == {}
    assert world.bad == {"endpoint not allowed": 1}
    (line,) = world.remarked("bad message")
    assert FORBIDDEN in line["detail"]
    assert "it is forbidden" in line["detail"]


def test_r51_the_log_shows_a_hostile_endpoint_escaped_and_cut() -> None:
    world = World(reach=lambda endpoint, address: (None, "no"))
    bench = world.bench("tcp://\x1b[2J\n" + "x" * 3000)
    assert bench.ping() == [ERROR]
    (line,) = world.remarked("bad message")
    assert line["detail"].isprintable()
    assert len(line["detail"]) < 300


def test_r51_what_lies_at_an_endpoint_is_judged_anew_before_every_dial() -> None:
    verdicts = ["place", "place", None]
    world = World(reach=lambda endpoint, address: (verdicts.pop(0), "it has become somebody else's"))
    world.places["place"] = "refused"
    bench = world.bench()
    assert bench.ping() == [PONG]
    world.wait(1)
    assert len(world.dialled) == 1
    assert bench.state == "away"
    assert world.remarked("dial rejected") == [{"worker": FIRST, "reason": "it has become somebody else's"}]


def test_r51_the_reach_is_told_the_address_of_whoever_registers() -> None:
    asked = []

    def reach(endpoint: str, address: str) -> tuple[object, str]:
        asked.append((endpoint, address))
        return endpoint, ""

    World(reach=reach).bench(address=ELSEWHERE).ping()
    assert set(asked) == {(FIRST, ELSEWHERE)}


def test_a_relative_ipc_endpoint_is_looked_for_under_base(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "w.ipc"))
        world = World(reach=DialPolicy([str(tmp_path)], []))
        bench = world.bench("ipc://w.ipc", f"uid {os.getuid()}")
        assert bench.ping() == [PONG]
        assert [place for _, place in world.dialled] == [str(tmp_path / "w.ipc")]
        assert bench.state == "idle"
        assert world.bench("ipc://../w.ipc").ping() == [ERROR]


# -------------------------------------------------------------------- R52: the endpoint is the identity


def test_r52_two_workers_that_claim_one_endpoint_are_one_worker() -> None:
    world = World()
    bench, twin = world.worker(), world.bench()
    assert twin.ping() == [PONG]
    assert world.workers == 1
    assert len(world.dialled) == 1
    assert world.remarked("endpoint conflict") == []
    assert twin.remove() == [REMOVED]
    assert bench.state == "unknown"


def test_r52_an_endpoint_claimed_from_another_address_is_a_takeover_counted_and_logged_once() -> None:
    world = World()
    bench = world.worker()
    thief = world.bench(address=ELSEWHERE)
    for _ in range(3):
        assert thief.ping() == [PONG]
    assert world.counters.takeovers == 1
    (line,) = world.remarked("endpoint conflict")
    assert line["endpoint"] == FIRST
    assert world.workers == 1
    assert bench.state == "idle"


# -------------------------------------------------------------------- R53: dialling


def test_r53_a_refused_dial_is_tried_again_every_50_ms_for_a_second_then_off_the_list() -> None:
    world = World()
    world.places[FIRST] = "refused"
    bench = world.bench()
    started = world.now
    assert bench.ping() == [PONG]
    world.wait(3)
    times = [when - started for when, _ in world.dialled]
    assert len(times) in (20, 21)
    assert [b - a for a, b in pairwise(times)] == pytest.approx([0.05] * (len(times) - 1))
    assert times[-1] <= 1.0
    assert bench.state == "away"
    assert world.remarked("worker unreachable") == [{"worker": FIRST}]


def test_r53_the_next_ping_of_one_that_was_not_reached_begins_anew() -> None:
    world = World()
    world.places[FIRST] = "refused"
    bench = world.bench()
    bench.ping()
    world.wait(5)
    world.places[FIRST] = "open"
    assert bench.state == "away"
    assert bench.ping() == [PONG]
    assert bench.state == "idle"


def test_r53_a_worker_that_pings_before_it_listens_is_found_within_50_ms() -> None:
    world = World()
    world.places[FIRST] = "refused"
    bench = world.bench()
    bench.ping()
    world.wait(0.3)
    world.places[FIRST] = "open"
    world.wait(0.05)
    assert bench.state == "idle"


def test_r53_pings_while_it_is_dialled_do_not_prolong_the_dialling() -> None:
    world = World()
    world.places[FIRST] = "refused"
    bench = world.bench()
    bench.ping()
    world.wait_pinging(0.9, bench, every=0.1)
    world.wait(0.15)
    assert bench.state == "away"


@pytest.mark.parametrize("mode", ["hangs", "mute"])
def test_r53_a_place_that_never_answers_is_off_the_list_after_a_second(mode: str) -> None:
    """No process accepts, or one accepts and never sends a greeting."""
    world = World()
    world.places[FIRST] = mode
    bench = world.bench()
    assert bench.ping() == [PONG]
    world.wait(0.9)
    assert bench.state == "dialling"
    world.wait(0.2)
    assert bench.state == "away"
    assert len(world.dialled) == 1
    assert [peer for peer in world.connections.peers if peer.dialled] == []


def test_r53_a_place_that_speaks_something_else_is_off_the_list_after_a_second() -> None:
    world = World()
    world.places[FIRST] = "mute"
    bench = world.bench()
    bench.ping()
    bench.end.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    world.wait(1.1)
    assert bench.state == "away"
    assert world.workers == 0


def test_r53_memory_is_flat_over_10_000_rounds_of_register_and_remove() -> None:
    world = World()
    registrant = world.connect(BACKEND)
    for number in range(10_000):
        endpoint = f"tcp://192.0.2.1:{1024 + number}"
        registrant.receive(b"", fields(PING, endpoint))
        if number % 3 == 0:
            world.run_once()
        registrant.receive(b"", fields(REMOVE, endpoint))
        if number % 50 == 0:
            world.run_once()
            registrant.messages()
            world.reached.clear()
    world.run_once()
    assert world.session._remotes == {}
    assert world.session._away == {}
    assert len(world.session._alarms) < 100
    assert len(world.connections.peers) == 1
    assert world.connections.registry.heartbeats.watched <= 1
    assert len(world.broker._deadlines) < 100


def test_r53_memory_is_bounded_over_10_000_endpoints_that_are_never_removed() -> None:
    world = World()
    registrant = world.connect(BACKEND)
    for number in range(10_000):
        endpoint = f"tcp://192.0.2.1:{1024 + number}"
        world.places[endpoint] = "refused"
        registrant.receive(b"", fields(PING, endpoint))
        if number % 500 == 0:
            world.wait(1.1)
            registrant.messages()
    world.wait(1.1)
    assert len(world.session._remotes) == len(world.session._away) == WORKERS_KEPT
    assert world.session._alarms.armed == 0
    assert len(world.session._alarms) < 100
    assert len(world.connections.peers) == 1


def test_r53_endpoints_that_are_dialled_at_once_are_bounded_and_those_beyond_wait_for_their_next_ping() -> None:
    """I5: nothing that peers fill is without a bound."""
    world = World()
    registrant = world.connect(BACKEND)
    for number in range(5_000):
        endpoint = f"tcp://192.0.2.1:{1024 + number}"
        world.places[endpoint] = "hangs"
        registrant.receive(b"", fields(PING, endpoint))
    world.run_once()
    assert registrant.told() == [PONG] * 5_000
    assert len(world.session._remotes) <= 2 * WORKERS_KEPT
    assert len(world.dialled) <= WORKERS_KEPT
    world.wait(1.1)
    bench = world.worker()
    assert bench.state == "idle"


def test_what_was_learned_of_an_endpoint_is_kept_for_the_last_so_many() -> None:
    world = World()
    bench, _ = world.busy()
    bench.finish()
    bench.die()
    assert bench.post.has_ids
    registrant = world.connect(BACKEND)
    for number in range(WORKERS_KEPT):
        endpoint = f"tcp://192.0.2.1:{10_000 + number}"
        registrant.receive(b"", fields(PING, endpoint))
        if number % 100 == 99:
            world.run_once()
            for end in list(world.ends):
                if end is not registrant and end is not bench.registrant and end.peer and end.peer.dialled:
                    world.connections.ended(end.peer, "reset")
            world.run_once()
    assert bench.state == "unknown"


def test_a_connection_that_comes_to_stand_after_it_was_given_up_makes_no_worker() -> None:
    """REMOVE, and the last bytes of the handshake, within one turn of the loop."""
    world = World()
    bench = world.bench()
    world.places[FIRST] = "mute"
    bench.ping()
    end = bench.end
    end.is_frozen = False
    bench.registrant.receive(b"", fields(REMOVE, FIRST))
    end.pump()
    assert end.peer is not None
    assert end.peer.is_open
    world.run_once()
    assert world.workers == 0
    assert bench.state == "unknown"
    assert end.is_over


def test_a_worker_for_whose_service_there_is_no_room_is_not_let_in_and_harms_nobody() -> None:
    world = World(policy=Policy(max_services=1))
    world.broker.submit("other", b"", Nobody(), JobOptions(waits=True), world.now)
    bench = world.bench()
    assert bench.ping() == [PONG]
    assert world.workers == 0
    world.wait(2)
    assert bench.state == "away"
    assert world.counters.internal_errors == 0
    assert world.remarked("worker rejected")


def test_the_address_of_a_worker_that_was_away_may_change_without_a_takeover() -> None:
    world = World()
    bench = world.worker(address=HOME)
    bench.end.cut()
    other = world.bench(address=ELSEWHERE)
    assert other.ping() == [PONG]
    assert world.counters.takeovers == 0
