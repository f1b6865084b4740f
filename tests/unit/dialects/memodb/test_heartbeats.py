"""Heartbeats of MemoDB's workers, and pauses of the broker: R75, D13."""

from __future__ import annotations

from .world import (
    DAY,
    World,
    answered,
    beats,
    disconnected,
    given,
    heartbeat,
    job,
    result,
)


def test_r75_a_heartbeat_unanswered_for_heartbeat_timeout_ends_the_worker() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    world.wait(9.99)
    assert world.is_known(id)
    world.wait(0.02)
    assert world.state(id) == "gone"
    assert world.counters.expired_workers == 1
    assert side.heard() == []
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)


def test_heartbeats_go_on_as_long_as_they_are_answered() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    for request in range(1, 20):
        world.wait(10)
        assert side.heard() == beats(request, id)
        world.wait(9.9)
        assert side.ask(request + 1, heartbeat(id)) == []
        assert world.state(id) == "idle"
    assert world.workers == 1


def test_a_worker_that_owes_a_heartbeat_is_given_nothing_until_it_has_asked_again() -> None:
    """REQ/REP: there is no request that a job could be the answer to."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    caller.ask(7, job())
    assert side.heard() == []
    assert side.ask(2, heartbeat(id)) == given(2, id)


def test_heartbeat_timeout_is_what_it_says_whatever_detach_timeout_is() -> None:
    """The broker's side, HEARTBEAT: it must come within `heartbeat_timeout`; no worker is detached here."""
    world = World(heartbeat_timeout=120)
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    world.wait(100)
    assert side.ask(2, heartbeat(id)) == []
    assert world.state(id) == "idle"


def test_a_short_detach_timeout_does_not_cut_heartbeat_timeout_short() -> None:
    world = World(detach_timeout=2)
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    world.wait(9)
    assert side.ask(2, heartbeat(id)) == []
    assert world.state(id) == "idle"


def test_a_job_and_a_heartbeat_that_are_due_in_one_turn_are_not_both_the_answer_to_one_request() -> None:
    """The job is decided first, so it is the answer: after a HEARTBEAT its worker would never see it, and lose it."""
    world = World(attempts=2)
    lost, side, caller = world.connect(), world.connect(), world.connect()
    first = world.busy_worker(lost, caller, timeout=60_000)
    second = world.worker(side)
    world.wait(9.95)
    assert lost.ask(2, heartbeat(first)) == disconnected(2, first)  # the job rests for a tenth of a second now
    world.late(0.5)
    assert side.heard() == given(1, second, timeout=60_000)
    assert side.ask(2, result(second)) == []
    assert caller.heard() == answered(501)


def test_d13_a_pause_of_our_own_expires_nobody() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    parked = world.worker(side, 1)
    world.wait(5)
    owing = world.worker(side, 10)
    world.wait(5)
    assert side.heard() == beats(1, parked)
    parked, owing = owing, parked
    busy = world.worker(side, 20, "long")
    caller.ask(7, job(service="long", timeout=DAY))
    side.heard()
    world.late(3_600)
    assert world.workers == 3
    assert world.counters.expired_workers == 0
    assert side.heard() == beats(10, parked)
    assert side.ask(2, heartbeat(owing)) == []
    assert side.ask(11, heartbeat(parked)) == []
    assert side.ask(21, result(busy)) == []
    assert caller.heard() == answered(7)


def test_d13_after_a_pause_whoever_does_not_answer_is_expired_in_its_time() -> None:
    world = World()
    side = world.connect()
    world.worker(side)
    world.late(3_600)
    world.wait(20)
    assert world.workers == 0


def test_d13_a_detached_worker_is_not_given_up_for_a_pause_of_ours() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller, timeout=-1)
    world.cut(side)
    world.wait(30)
    world.late(3_600)
    assert world.state(id) == "detached"
    world.connect().ask(2, result(id, b"kept"))
    assert caller.heard() == answered(501, b"kept")
