"""Workers that answer BUSY to a task: R98."""

from __future__ import annotations

import pytest

from dragoman.core.states import Outcome

from .world import World, editions


@editions
def test_r98_busy_sends_the_job_to_another_worker_at_once_and_spends_nothing(world: World, edition: str) -> None:
    fellow, other = world.worker(edition), world.worker(edition)
    caller = world.submit(attempts=1)
    fellow.call("SET_TASK").answer("BUSY")
    assert fellow.state == "backing off"
    other.finish(other.take())
    assert caller.outcome is Outcome.DONE
    assert caller.job is not None
    assert caller.job.spent == 0


def test_r98_a_worker_that_is_busy_ever_after_is_asked_ever_more_rarely(world: World) -> None:
    fellow = world.worker(next_pulse=10_000)
    world.submit(job_timeout=10_000)
    fellow.call("SET_TASK").answer("BUSY")
    last = world.now
    waits = []
    while len(waits) < 12:
        world.now = max(world.now, world.run_once())
        world.run_once()
        for call in fellow.calls():
            waits.append(round(world.now - last, 3))
            call.answer("BUSY")
            last = world.now
    expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]
    assert waits == pytest.approx(expected, abs=0.11)  # every tenth refusal the job rests 0.1 s itself


@pytest.mark.parametrize("how", ["pulse", "status", "result", "late failure", "REGISTER"])
def test_r98_what_ends_the_wait_of_a_busy_worker(world: World, how: str) -> None:
    fellow, first, held = world.busy(next_pulse=100)
    world.withdraw(first)
    caller = world.submit(b"second", job_timeout=1000)
    for _ in range(9):
        fellow.call("SET_TASK").answer("BUSY", held.task)
        world.wait(fellow.remote.retry_delay - 0.001)
        assert fellow.calls() == []
        world.wait(0.002)
    fellow.call("SET_TASK").answer("BUSY", held.task)
    world.wait(1)
    assert fellow.state == "backing off"
    if how == "pulse":
        fellow.ok(0)
    elif how == "status":
        fellow.ok(4711)
        fellow.call("GET_STATUS").answer("OK", 0)
    elif how == "result":
        fellow.fetch_me(held.task)
        fellow.call("FETCH").answer("OK", held.task, b"late")
    elif how == "late failure":
        fellow.fetch_me(held.task)
        fellow.call("FETCH").answer("TASK_FAILED", held.task, b"late")
    else:
        fellow = world.worker()
    fellow.finish(fellow.take(b"second"))
    assert caller.outcome is Outcome.DONE
    if how != "REGISTER":
        assert fellow.remote.retry_delay == 0


def test_r98_a_pulse_with_its_old_task_does_not_end_the_wait(world: World) -> None:
    fellow, first, held = world.busy()
    world.withdraw(first)
    world.submit()
    fellow.call("SET_TASK").answer("BUSY", held.task)
    world.wait(0.05)
    fellow.ok(held.task)
    assert fellow.calls() == []
    assert fellow.state == "backing off"


def test_r98_the_result_that_makes_it_busy_is_fetched_even_if_its_fetch_me_came_during_set_task(world: World) -> None:
    """It says FETCH_ME once. Not to ask would leave it busy for ever."""
    fellow, first, held = world.busy()
    world.withdraw(first)
    caller = world.submit(b"second")
    task = fellow.call("SET_TASK")
    fellow.fetch_me(held.task)
    assert fellow.calls() == []
    task.answer("BUSY", held.task)
    fellow.call("FETCH").answer("OK", held.task, b"late")
    assert caller.told == []
    fellow.finish(fellow.take(b"second"), b"second")
    assert caller.told == [(Outcome.DONE, b"second", "")]


def test_r98_busy_to_a_job_that_was_cancelled_meanwhile(world: World) -> None:
    fellow = world.worker()
    caller = world.submit()
    call = fellow.call("SET_TASK")
    world.withdraw(caller)
    call.answer("BUSY")
    assert fellow.state == "backing off"
    world.wait(0.11)
    assert fellow.state == "idle"


def test_r98_the_broken_lease_of_a_resting_worker_is_judged(world: World) -> None:
    fellow = world.worker(next_pulse=10)
    for _ in range(3):
        caller = world.submit()
        for call in fellow.calls():
            call.answer("BUSY")
        world.withdraw(caller)
    world.sockets.clear()
    world.wait(15)
    assert fellow.state == "gone"
