"""Several workers of one controller, and pauses of the broker: D13."""

from __future__ import annotations

import pytest

from dragoman.core.states import Outcome

from .world import World, editions


@editions
def test_two_workers_at_once(world: World, edition: str) -> None:
    one, two = world.worker(edition), world.worker("seed")
    callers = [world.submit(b"a"), world.submit(b"b"), world.submit(b"c")]
    first, second = one.take(b"a"), two.take(b"b")
    two.finish(second, b"B")
    third = two.take(b"c")
    one.finish(first, b"A")
    two.finish(third, b"C")
    assert [caller.told[0][1] for caller in callers] == [b"A", b"B", b"C"]


def test_workers_take_turns(world: World) -> None:
    fellows = [world.worker() for _ in range(3)]
    for _ in range(2):
        for fellow in fellows:
            world.submit()
            fellow.finish(fellow.take())


def test_d13_our_own_pause_kills_nobody(world: World) -> None:
    fellow, caller, call = world.busy(next_pulse=10, job_timeout=1000)
    idle = world.worker(next_pulse=10)
    starting = world.register(next_pulse=10, listens=False)
    world.late(500)
    assert (idle.state, fellow.state, starting.state) == ("idle", "busy", "starting")
    assert idle.calls() == fellow.calls() == []
    fellow.finish(call)
    assert caller.outcome is Outcome.DONE
    world.wait(13)
    assert [each.word for each in idle.calls()] == ["GET_STATUS"]


@pytest.mark.parametrize("is_connected", [True, False])
def test_d13_a_get_status_that_we_slept_over_is_not_late(world: World, is_connected: bool) -> None:
    fellow, caller, call = world.busy(next_pulse=10, job_timeout=1000)
    if not is_connected:
        world.hanging.add(fellow.id)
    world.wait(12.01)
    world.late(30)
    assert fellow.state == "busy"
    world.hanging.clear()
    world.run_once()
    fellow.call("GET_STATUS").answer("OK", call.task)
    fellow.finish(call)
    assert caller.outcome is Outcome.DONE


def test_d13_a_fetch_that_we_slept_over_is_not_late(world: World) -> None:
    fellow, caller, call = world.busy(job_timeout=1000, next_pulse=1000)
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    world.late(60)
    assert fellow.calls() == []
    fetch.answer("OK", call.task, b"result")
    assert caller.outcome is Outcome.DONE


def test_what_nobody_knows_of_any_more_leaves_nothing_behind(world: World) -> None:
    for _ in range(20):
        fellow = world.worker()
        caller = world.submit()
        fellow.finish(fellow.take())
        fellow.pulse("SHUTDOWN")
        assert caller.outcome is Outcome.DONE
    session = world.session
    assert not session._workers.by_id
    assert (
        session._workers.alarms.armed
        == session._exchanges.deadlines.armed
        == session._exchanges.idle_connections.armed
        == 0
    )
    assert not world.connections.peers
    assert {event for _, event, _ in world.remarks} == {"worker joined", "worker left"}


def test_nobody_calls_in_this_dialect_and_effects_for_callers_mean_nothing(world: World) -> None:
    world.session.execute(object(), world.now)  # type: ignore[arg-type]
