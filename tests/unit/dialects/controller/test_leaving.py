"""Cancelled jobs, and workers that shut down or are drained or killed: D11."""

from __future__ import annotations

import pytest

from dragoman.core.states import Outcome

from .world import Told, World, editions, pulse, retry

# -------------------------------------------------------------------- SHUTDOWN


@editions
def test_shutdown_of_an_idle_worker(world: World, edition: str) -> None:
    fellow = world.worker(edition)
    assert fellow.pulse("SHUTDOWN", task_id=99, next_pulse=2**64 - 1) == Told("OK")
    assert fellow.state == "gone"
    assert fellow.calls() == []


@editions
def test_shutdown_with_a_job_in_hand_gives_it_to_another_at_once(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition)
    other = world.worker()
    assert fellow.pulse("SHUTDOWN", call.task) == Told("OK")
    world.wait(0.2)
    again = other.call("SET_TASK")
    assert again.said[2] == b"job"
    assert again.task != call.task
    again.answer("OK", again.task)
    other.finish(again)
    assert caller.outcome is Outcome.DONE
    assert caller.job is not None
    assert caller.job.spent == 1


def test_shutdown_in_the_middle_of_set_task_and_its_answer_is_read(world: World) -> None:
    fellow = world.worker()
    caller = world.submit(attempts=1)
    call = fellow.call("SET_TASK")
    fellow.pulse("SHUTDOWN")
    assert caller.outcome is Outcome.LOST
    assert call.is_open
    call.answer("OK", call.task)
    assert not call.is_open


def test_shutdown_is_final_and_register_needs_no_other_pulse(world: World) -> None:
    fellow = world.worker()
    late = world.visit()
    fellow.pulse("SHUTDOWN")
    late.say(pulse("OK", worker_id=fellow.id))
    world.run_once()
    assert late.told() == Told("UNKNOWN_ID")
    assert world.worker().state == "idle"


# -------------------------------------------------------------------- cancel, time-out, drain, kill


@editions
def test_d11_a_cancelled_job_leaves_its_worker_as_usual_and_busy_says_that_it_still_works(
    world: World, edition: str
) -> None:
    fellow, first, held = world.busy(edition)
    world.withdraw(first)
    assert first.outcome is Outcome.CANCELLED
    assert fellow.state == "idle"
    second = world.submit(b"second")
    fellow.call("SET_TASK").answer("BUSY", held.task)
    fellow.fetch_me(held.task)
    fellow.call("FETCH").answer("OK", held.task, b"late")
    fellow.finish(fellow.take(b"second"))
    assert second.outcome is Outcome.DONE
    assert len(first.told) == 1


@editions
def test_d11_a_job_that_timed_out_is_offered_elsewhere_and_its_late_result_dropped(world: World, edition: str) -> None:
    fellow, caller, held = world.busy(edition, next_pulse=1000, job_timeout=20)
    other = world.worker(next_pulse=1000)
    world.wait(20.1)
    retry(world)
    task = other.take()
    fellow.fetch_me(held.task)
    fellow.call("FETCH").answer("OK", held.task, b"late")
    assert caller.told == []
    assert world.counters.late_results == 1
    other.finish(task, b"in time")
    assert caller.told == [(Outcome.DONE, b"in time", "")]


def test_d11_a_job_cancelled_inside_its_exchange_frees_the_worker_when_that_has_ended(world: World) -> None:
    fellow = world.worker()
    first = world.submit()
    call = fellow.call("SET_TASK")
    world.withdraw(first)
    second = world.submit(b"second")
    assert fellow.state == "stuck"
    fellow.fetch_me(call.task)
    call.answer("OK", call.task)
    fellow.call("FETCH").answer("OK", call.task, b"late")
    fellow.finish(fellow.take(b"second"))
    assert second.outcome is Outcome.DONE
    assert world.counters.late_results == 1


@pytest.mark.parametrize("answer", ["OK", "TASK_FAILED"])
def test_d11_a_job_cancelled_inside_its_exchange_and_its_answer(world: World, answer: str) -> None:
    fellow = world.worker()
    first = world.submit()
    call = fellow.call("SET_TASK")
    world.withdraw(first)
    call.answer(answer, call.task)
    assert fellow.state == "idle"
    assert [told[0] for told in first.told] == [Outcome.CANCELLED]


def test_d11_a_job_cancelled_while_its_result_is_fetched(world: World) -> None:
    fellow, caller, call = world.busy()
    fellow.fetch_me(call.task)
    fetch = fellow.call("FETCH")
    world.withdraw(caller)
    assert fellow.state == "stuck"
    fetch.answer("OK", call.task, b"late")
    assert fellow.state == "idle"
    assert caller.outcome is Outcome.CANCELLED
    assert world.counters.late_results == 1


def test_a_hung_exchange_of_a_cancelled_job_does_not_keep_its_worker_for_ever() -> None:
    world = World(stuck_timeout=100)
    fellow = world.worker(next_pulse=1000)
    caller = world.submit(job_timeout=500)
    call = fellow.call("SET_TASK")
    world.withdraw(caller)
    world.wait(101)
    assert fellow.state == "gone"
    assert fellow.calls() == []  # it expired: no RESTART
    assert call.is_open
    call.answer("OK", call.task)


@editions
def test_a_drained_worker_finishes_its_job_and_is_told_to_restart(world: World, edition: str) -> None:
    fellow, caller, call = world.busy(edition)
    world.broker.availability.drain(fellow.remote.worker, world.now)
    world.run_once()
    assert fellow.state == "draining"
    assert fellow.calls() == []
    fellow.fetch_me(call.task)
    fellow.call("FETCH").answer("OK", call.task, b"result")
    assert caller.outcome is Outcome.DONE
    restart = fellow.call("RESTART")
    assert fellow.state == "gone"
    restart.cut()
    assert fellow.pulse("OK") == Told("UNKNOWN_ID")


@pytest.mark.parametrize("state", ["starting", "idle"])
def test_a_worker_without_a_job_is_drained_at_once(world: World, state: str) -> None:
    fellow = world.register() if state == "starting" else world.worker()
    world.broker.availability.drain(fellow.remote.worker, world.now)
    world.run_once()
    assert fellow.state == "gone"
    fellow.call("RESTART").answer()
    world.wait(20)
    assert fellow.calls() == []


def test_a_worker_is_not_told_to_restart_when_the_broker_stops(world: World) -> None:
    """R111. After RESTART, the only word that there is, a worker would not come back to the next broker."""
    fellow = world.worker()
    world.broker.operator.close(world.now)
    world.broker.operator.abort(world.now)
    world.run_once()
    assert fellow.state == "gone"
    assert fellow.calls() == []


def test_a_draining_worker_that_has_lost_its_task_does_not_come_back(world: World) -> None:
    fellow, caller, call = world.busy(attempts=1)
    world.broker.availability.drain(fellow.remote.worker, world.now)
    world.run_once()
    fellow.fetch_me(call.task)
    fellow.call("FETCH").cut()
    fellow.call("FETCH").answer("NO_FETCH")
    assert caller.outcome is Outcome.LOST
    assert fellow.state == "gone"
    fellow.call("RESTART").answer()


@pytest.mark.parametrize("during", ["SET_TASK", "FETCH", "work"])
@editions
def test_a_killed_worker_is_told_to_restart_at_once(world: World, edition: str, during: str) -> None:
    fellow = world.worker(edition)
    caller = world.submit(attempts=1)
    call = fellow.call("SET_TASK")
    if during != "SET_TASK":
        call.answer("OK", call.task)
    if during == "FETCH":
        fellow.fetch_me(call.task)
        call = fellow.call("FETCH")
    world.broker.availability.drain(fellow.remote.worker, world.now, at_once=True)
    world.run_once()
    assert caller.outcome is Outcome.LOST
    assert fellow.state == "gone"
    fellow.call("RESTART").answer()
    if during != "work":
        assert call.is_open
        call.answer("OK", call.task, b"late")


def test_a_killed_worker_that_is_not_there_any_more(world: World) -> None:
    fellow = world.worker()
    world.sockets.clear()
    world.broker.availability.drain(fellow.remote.worker, world.now, at_once=True)
    world.run_once()
    assert fellow.state == "gone"


def test_a_restart_that_is_never_answered_is_waited_for_and_then_closed(world: World) -> None:
    fellow = world.worker()
    world.broker.availability.drain(fellow.remote.worker, world.now, at_once=True)
    world.run_once()
    restart = fellow.call("RESTART")
    world.wait(600)
    assert restart.is_open
    world.may_close_early = True
    world.wait(4000)
    assert not restart.is_open
    assert world.session._exchanges.deadlines.armed == 0
