"""Jobs that were never sent."""

from __future__ import annotations

import pytest

from dragoman.core.effects import DeliverOutcome, RemoveWorker, SendJob
from dragoman.core.states import JobState, Outcome, RefusalReason, RemovalReason, WorkerState

from .detached_workers import away_busy
from .world import Caller, CheckedBroker, attempt_of


def test_undelivered_job_goes_to_another_worker_at_once(broker: CheckedBroker) -> None:
    """R8, R12: no attempt is spent, and the first is as free as it was."""
    first, other = broker.worker(), broker.worker()
    attempt = broker.running(first)
    broker.attempts.undelivered(attempt, 1.0)
    again = attempt_of(attempt.job)
    assert broker.take() == [SendJob(again)]
    assert (again.worker, again.number, attempt.job.spent, attempt.job.history) == (other, 1, 0, None)
    assert (first.state, first.running, first.stuck) == (WorkerState.IDLE, {}, {})
    assert not broker.succeed(attempt, b"of nobody", 2.0)


def test_undelivered_job_goes_back_to_its_worker_if_there_is_no_other(broker: CheckedBroker) -> None:
    """I6: a free worker and a waiting job meet."""
    attempt = broker.running()
    broker.attempts.undelivered(attempt, 1.0)
    again = attempt_of(attempt.job)
    assert broker.take() == [SendJob(again)]
    assert (again is not attempt, again.worker, again.worker.state) == (True, attempt.worker, WorkerState.BUSY)


def test_worker_of_an_undelivered_job_is_given_another_that_waits(broker: CheckedBroker) -> None:
    """R12, I6: the job itself is another's by then."""
    first, other = broker.worker("s", "t"), broker.worker("s")
    attempt = broker.running(first)
    waiting = broker.call(service="t", now=1.0)
    broker.attempts.undelivered(attempt, 2.0)
    assert (attempt_of(attempt.job).worker, attempt_of(waiting).worker) == (other, first)


def test_undelivered_job_of_a_detached_worker_waits_in_its_place(broker: CheckedBroker) -> None:
    """R8, R64: the worker stays detached."""
    attempt = away_busy(broker)
    later = broker.call(now=1.0)
    broker.attempts.undelivered(attempt, 2.0)
    assert (attempt.worker.state, attempt.worker.free) == (WorkerState.DETACHED, 1)
    assert (attempt.job.state, broker.take()) == (JobState.WAITING, [])
    other = broker.worker(now=3.0)
    assert (attempt_of(attempt.job).worker, later.state) == (other, JobState.WAITING)


def test_detached_worker_whose_job_was_undelivered_has_its_lease_again(broker: CheckedBroker) -> None:
    """D5: silent while busy, and no longer busy."""
    attempt = away_busy(broker, lease=20.0, silent_while_busy=True)
    broker.run_until(30.0)
    broker.seen(attempt.worker, 30.0)
    broker.attempts.undelivered(attempt, 40.0)
    broker.run_until(49.9)
    assert attempt.worker.state is WorkerState.DETACHED
    broker.run_until(50.0)
    assert attempt.worker.state is WorkerState.GONE


def test_undelivered_job_is_no_life_sign(broker: CheckedBroker) -> None:
    """D1: the worker sent nothing."""
    attempt = broker.running(broker.worker(lease=5.0))
    broker.attempts.undelivered(attempt, 4.0)
    assert attempt.worker.seen == 0.0
    broker.run_until(5.0)
    assert attempt.worker.state is WorkerState.GONE


def test_draining_worker_is_dismissed_if_its_last_job_was_undelivered(broker: CheckedBroker) -> None:
    attempt = broker.running()
    broker.availability.drain(attempt.worker, 1.0)
    broker.attempts.undelivered(attempt, 2.0)
    assert broker.take() == [RemoveWorker(attempt.worker, RemovalReason.DRAINED, "drained")]
    assert (attempt.job.state, attempt.job.spent) == (JobState.WAITING, 0)


def test_draining_worker_keeps_its_other_job(broker: CheckedBroker) -> None:
    worker = broker.worker(capacity=2)
    attempt, other = broker.running(worker), broker.running(worker)
    broker.availability.drain(worker, 1.0)
    broker.attempts.undelivered(attempt, 2.0)
    assert (worker.state, list(worker.running.values()), broker.take()) == (WorkerState.DRAINING, [other], [])


def test_undelivered_attempt_that_is_over_proves_its_slot(broker: CheckedBroker) -> None:
    """D11: its worker cannot be at it."""
    attempt = broker.running()
    broker.withdraw(attempt.job, 1.0)
    following = broker.call(now=2.0)
    broker.take()
    broker.attempts.undelivered(attempt, 3.0)
    assert broker.take() == [SendJob(attempt_of(following))]
    assert (attempt.job.outcome, attempt.worker.stuck) == (Outcome.CANCELLED, {})


@pytest.mark.parametrize("way", ["proven", "gone", "done"])
def test_undelivered_attempt_that_is_over_and_holds_no_slot_changes_nothing(broker: CheckedBroker, way: str) -> None:
    """D2."""
    attempt = broker.running()
    if way == "done":
        broker.succeed(attempt, b"", 1.0)
    else:
        broker.withdraw(attempt.job, 1.0)
        broker.idle(attempt.worker, 1.0) if way == "proven" else broker.leave(attempt.worker, 1.0, "gone")
    running = broker.running(broker.worker(now=1.0) if way == "gone" else attempt.worker, now=2.0)
    state, outcome = attempt.worker.state, attempt.job.outcome
    broker.attempts.undelivered(attempt, 3.0)
    assert (attempt.worker.state, attempt.job.outcome, broker.take()) == (state, outcome, [])
    assert running.job.attempt is running


def test_job_that_is_undelivered_again_and_again_rests(broker: CheckedBroker) -> None:
    """R8: after ten in a row."""
    job = broker.running().job
    for _ in range(broker.policy.max_undelivered):
        broker.attempts.undelivered(attempt_of(job), 1.0)
    assert (job.state, job.spent, broker.counters.dispatched) == (JobState.DELAYED, 0, 10)
    broker.tick(1.1)
    assert job.state is JobState.RUNNING


def test_undelivered_job_whose_queue_time_is_over_has_timed_out(broker: CheckedBroker, caller: Caller) -> None:
    """R8: a dispatch that reached no worker does not renew it."""
    attempt = broker.running(caller=caller, queue_timeout=5.0)
    broker.attempts.undelivered(attempt, 5.0)
    assert broker.take() == [
        DeliverOutcome(caller, attempt.job, Outcome.TIMED_OUT, reason="no worker took it within 5 s")
    ]
    assert attempt.worker.state is WorkerState.IDLE


def test_undelivered_call_is_refused_while_the_broker_drains(broker: CheckedBroker, caller: Caller) -> None:
    attempt = broker.running(caller=caller)
    broker.operator.close(1.0)
    broker.attempts.undelivered(attempt, 2.0)
    (answer,) = broker.take()
    assert isinstance(answer, DeliverOutcome)
    assert (answer.outcome, answer.refusal) == (Outcome.REFUSED, RefusalReason.DRAINING)


def test_undelivered_call_whose_caller_has_gone_is_not_started_again(broker: CheckedBroker, caller: Caller) -> None:
    """R18."""
    attempt = broker.running(caller=caller)
    broker.caller_gone(caller, 1.0)
    broker.attempts.undelivered(attempt, 2.0)
    assert (attempt.job.outcome, broker.take()) == (Outcome.CANCELLED, [])
    assert attempt.worker.state is WorkerState.IDLE
