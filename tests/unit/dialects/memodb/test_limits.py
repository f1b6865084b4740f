"""Limits on the requests that a MemoDB listener holds without a reply: R76."""

from __future__ import annotations

from .world import (
    World,
    answered,
    given,
    job,
    ready,
    result,
)


def test_r76_beyond_max_parked_per_peer_the_oldest_call_of_the_connection_gets_silence() -> None:
    world = World(max_parked_per_peer=3)
    side, caller, other = world.connect(), world.connect(), world.connect()
    other.ask(1, job(b"other's"))
    for number in (1, 2, 3, 4):
        caller.ask(number, job(b"%d" % number))
    assert world.silences == {"cancelled": 1}
    assert world.present == 4
    id = world.worker(side)
    for request in (2, 3, 4, 5):
        side.ask(request, result(id, b"%d" % request))
    assert [said.request for said in caller.heard()] == [2, 3, 4]
    assert [said.request for said in other.heard()] == [1]


def test_r76_a_call_whose_job_runs_gets_silence_too_and_its_job_may_end() -> None:
    world = World(max_parked_per_peer=1)
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller.ask(7, job(b"newer"))
    assert side.ask(2, result(id)) == given(2, id, b"newer")
    assert caller.heard() == []
    side.ask(3, result(id, b"newer's"))
    assert caller.heard() == answered(7, b"newer's")


def test_r76_where_only_workers_are_parked_a_newcomer_is_met_with_silence() -> None:
    world = World(max_parked_per_peer=2)
    side = world.connect()
    ids = [world.worker(side, number) for number in (1, 2)]
    assert side.ask(3, ready()) == []
    assert side.ask(4, job()) == []
    assert world.workers == 2
    assert world.present == 0
    assert [world.state(id) for id in ids] == ["idle"] * 2


def test_r76_a_worker_s_ready_makes_room_among_the_calls_of_its_connection() -> None:
    world = World(max_parked_per_peer=2)
    side = world.connect()
    side.ask(1, job(b"oldest"))
    side.ask(2, job(b"older"))
    (said,) = side.ask(3, ready())
    assert said.payload == b"older"


def test_r76_max_parked_counts_all_peers_and_spares_the_others() -> None:
    world = World(max_parked=3)
    one, two = world.connect(), world.connect()
    one.ask(1, job(b"1"))
    one.ask(2, job(b"2"))
    two.ask(1, job(b"3"))
    two.ask(2, job(b"4"))
    assert world.present == 3
    assert len(one.contacts.waiting) == 2
    assert len(two.contacts.waiting) == 1
    three = world.connect()
    assert three.ask(1, job(b"5")) == []
    assert world.present == 3


def test_r76_a_repeated_request_needs_no_room() -> None:
    world = World(max_parked=2)
    side = world.connect()
    side.ask(1, ready())
    side.ask(2, job(service="other"))
    for _ in range(3):
        side.ask(1, ready())
        side.ask(2, job(service="other"))
    assert (world.workers, world.present) == (1, 1)
    assert world.silences == {}


def test_r76_whoever_finds_no_room_has_done_nothing_wrong_and_is_not_thrown_out() -> None:
    """R73: silence is for that request only; others share the connection."""
    world = World(max_parked=2)
    crowd, side = world.connect(), world.connect()
    crowd.ask(1, job(service="other"))
    id = world.worker(side)
    for request in range(100, 130):
        if not side.is_lost:
            side.ask(request, job(service="other"))
    assert not side.is_lost
    assert world.state(id) == "idle"


def test_r76_there_is_room_again_when_requests_have_been_answered() -> None:
    world = World(max_parked=2)
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    for number in range(1, 10):
        caller.ask(number, job(b"%d" % number))
        side.ask(number + 1, result(id))
        assert caller.heard() == answered(number)
    assert world.silences == {}


def test_r76_hundreds_of_parked_requests_on_one_connection_end_with_it() -> None:
    world = World()
    side = world.connect()
    for number in range(100):
        side.receive(number, ready("rare"))
        side.receive(1_000 + number, job(b"%d" % number))
    world.run_once()
    assert (world.workers, world.present) == (100, 100)
    world.cut(side)
    world.wait(25)
    assert (world.workers, world.present) == (0, 0)
