"""Slow jobs, and MemoDB workers that are drained or killed while the broker runs or stops."""

from __future__ import annotations

from .world import (
    World,
    answered,
    beats,
    disconnected,
    given,
    heartbeat,
    job,
    result,
)


def test_slow_jobs_do_not_disturb_short_ones_and_their_workers_are_not_thrown_out() -> None:
    """The MemoDB document: slow jobs taking several minutes, while still using shorter timeouts for faster jobs."""
    world = World()
    side, caller = world.connect(), world.connect()
    slow = world.busy_worker(side, caller, 1, timeout=900_000)
    fast = world.worker(side, 2)
    for minute in range(10):
        world.wait(60 - 20)
        if not world.is_known(fast):
            fast = world.worker(side, 100 + 2 * minute)
        caller.ask(1_000 + minute, job(b"fast", timeout=1_000))
        side.ask(101 + 2 * minute, result(fast, b"fast's"))
        assert caller.heard() == answered(1_000 + minute, b"fast's")
        world.wait(20)
    assert world.state(slow) == "busy"
    side.heard()
    assert side.ask(9_999, result(slow, b"slow's")) == []
    assert caller.heard() == answered(501, b"slow's")


def test_draining_a_parked_worker_tells_it_disconnect() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.beating_worker(side)
    world.broker.availability.drain(world.record(id), world.now)
    world.run_once()
    assert side.heard() == disconnected(2, id)
    assert world.state(id) == "gone"
    caller.ask(7, job())
    assert side.heard() == []


def test_a_worker_that_an_operator_drained_stays_and_gets_nothing() -> None:
    """Told DISCONNECT, it said READY at once and got the next job."""
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    drained = world.record(id)
    assert drained.profile.comes_back
    world.broker.availability.drain(drained, world.now, stays=True)
    assert side.ask(2, result(id)) == []
    caller.ask(7, job())
    for number in range(2, 6):
        world.wait(10)
        assert side.heard() == beats(number, id)
        assert side.ask(number + 1, heartbeat(id)) == []
    assert (world.record(id), world.state(id)) == (drained, "draining")


def test_draining_a_busy_worker_lets_it_finish_and_then_tells_it_disconnect() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    world.broker.availability.drain(world.record(id), world.now)
    world.run_once()
    assert side.heard() == []
    caller.ask(7, job())
    assert side.ask(2, result(id)) == disconnected(2, id)
    assert caller.heard() == answered(501)
    assert world.state(id) == "gone"


def test_draining_a_worker_that_owes_a_heartbeat_tells_it_disconnect_when_it_comes() -> None:
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.wait(10)
    assert side.heard() == beats(1, id)
    world.broker.availability.drain(world.record(id), world.now)
    world.run_once()
    assert side.heard() == []
    assert side.ask(2, heartbeat(id)) == disconnected(2, id)


def test_draining_a_detached_worker_tells_it_disconnect_when_it_comes_back() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    parked = world.beating_worker(side, 1)
    busy = world.worker(side, 10, "other")
    caller.ask(7, job(service="other"))
    world.cut(side)
    for id in (parked, busy):
        world.broker.availability.drain(world.record(id), world.now)
    world.run_once()
    side = world.connect()
    assert side.ask(2, heartbeat(parked)) == disconnected(2, parked)
    assert side.ask(11, result(busy)) == disconnected(11, busy)
    assert caller.heard() == answered(7)


def test_killing_a_worker_tells_it_disconnect_at_once_or_when_it_comes() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    parked = world.worker(side, 1)
    busy = world.busy_worker(side, caller, 10, service="other")
    for id in (parked, busy):
        world.broker.availability.drain(world.record(id), world.now, at_once=True)
    world.run_once()
    assert side.heard() == disconnected(1, parked)
    assert world.silences == {"lost": 1}
    assert side.ask(11, result(busy)) == disconnected(11, busy)
    assert caller.heard() == []


def test_draining_the_broker_refuses_what_waits_and_what_comes_and_lets_end_what_runs() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.busy_worker(side, caller)
    caller.ask(7, job(b"waits"))
    world.broker.operator.close(world.now)
    world.run_once()
    caller.ask(8, job(b"comes"))
    assert world.silences == {"refused": 2}
    assert side.ask(2, result(id)) == []
    assert caller.heard() == answered(501)
    world.wait(10)
    assert side.heard() == beats(2, id)
    assert side.ask(3, heartbeat(id)) == []
    assert caller.ask(501, job()) == answered(501)


def test_when_the_time_for_draining_is_over_what_runs_is_lost() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    world.busy_worker(side, caller)
    world.broker.operator.close(world.now)
    world.broker.operator.abort(world.now)
    world.runner.run_once()
    assert caller.heard() == []
    assert world.silences == {"lost": 1}


def test_idle_workers_hear_disconnect_when_the_broker_stops() -> None:
    """R111."""
    world = World()
    side = world.connect()
    id = world.worker(side)
    world.broker.operator.close(world.now)
    world.broker.operator.abort(world.now)
    world.runner.run_once()
    assert side.heard() == disconnected(1, id)


def test_while_a_service_is_paused_its_workers_get_heartbeats() -> None:
    world = World()
    side, caller = world.connect(), world.connect()
    id = world.worker(side)
    world.broker.operator.pause("echo")
    caller.ask(7, job())
    world.wait(9.9)
    world.broker.operator.resume("echo", world.now)
    world.run_once()
    assert side.heard() == given(1, id)
