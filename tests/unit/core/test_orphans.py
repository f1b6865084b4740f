"""Jobs whose callers are disconnected and may return."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.effects import DeliverOutcome
from dragoman.core.model import Attempt
from dragoman.core.states import JobState, Outcome

from .world import Caller, CheckedBroker, attempt_of


@pytest.mark.parametrize("delay", [0.0, 100.0])
def test_call_waits_the_grace_for_a_caller_out_of_reach(broker: CheckedBroker, caller: Caller, delay: float) -> None:
    """R18, R64: its outcome is delivered even so, for a caller that returns later."""
    job = broker.call(caller=caller, orphan_grace=5.0, delay=delay)
    broker.availability.caller_away(job.callers[0], 1.0)
    broker.run_until(5.9)
    assert (job.state is not JobState.ENDED, job.callers, broker.take()) == (True, (caller,), [])
    broker.run_until(6.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.CANCELLED, reason="its caller has gone")]


def test_call_without_grace_is_cancelled_when_time_is_looked_at_next(broker: CheckedBroker) -> None:
    """R18."""
    job = broker.call()
    broker.availability.caller_away(job.callers[0], 1.0)
    assert broker.next_deadline() == 1.0
    broker.tick(1.0)
    assert job.outcome is Outcome.CANCELLED


@pytest.mark.parametrize("delay", [0.0, 7.0])
def test_call_whose_caller_is_back_waits_on(broker: CheckedBroker, caller: Caller, delay: float) -> None:
    """R64."""
    job = broker.call(caller=caller, orphan_grace=5.0, delay=delay)
    broker.availability.caller_away(job.callers[0], 1.0)
    broker.availability.caller_back(job.callers[0])
    broker.run_until(50.0)
    assert (job.state, broker.take()) == (JobState.WAITING, [])
    broker.availability.caller_away(job.callers[0], 50.0)
    broker.run_until(55.0)
    assert job.outcome is Outcome.CANCELLED


def test_call_is_handed_out_within_the_grace_and_then_goes_on(broker: CheckedBroker, caller: Caller) -> None:
    """R19, R64: its answer is kept for the caller."""
    job = broker.call(caller=caller, orphan_grace=5.0)
    broker.availability.caller_away(job.callers[0], 1.0)
    broker.worker(now=3.0)
    broker.take()
    broker.run_until(30.0)
    broker.succeed(attempt_of(job), b"result", 30.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.DONE, b"result")]
    assert broker.counters.unclaimed_results == 0


def test_running_call_goes_on_without_its_caller(broker: CheckedBroker, caller: Caller) -> None:
    """R19, R64."""
    attempt = broker.running(caller=caller)
    broker.availability.caller_away(attempt.job.callers[0], 1.0)
    broker.run_until(30.0)
    assert broker.succeed(attempt, b"result", 30.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.DONE, b"result")]


RETURNS = ["is undelivered", "is unseen", "is refused", "fails", "is lost"]


def give_back(broker: CheckedBroker, attempt: Attempt, way: str, now: float) -> None:
    if way == "is undelivered":
        broker.attempts.undelivered(attempt, now)
    elif way == "is refused":
        broker.attempts.refuse(attempt, now)
    elif way == "fails":
        broker.fail(attempt, "no", now)
    else:
        broker.leave(attempt.worker, now, "gone", unseen=[attempt] if way == "is unseen" else [])


@pytest.mark.parametrize("way", RETURNS)
def test_orphan_that_is_given_back_after_its_grace_is_not_started_again(
    broker: CheckedBroker, caller: Caller, way: str
) -> None:
    """R18, R64. A bug: if another worker was free, it was dispatched again."""
    attempt = broker.running(broker.worker(may_decline=True), caller=caller, attempts=3, orphan_grace=5.0)
    broker.worker()
    broker.availability.caller_away(attempt.job.callers[0], 1.0)
    give_back(broker, attempt, way, 6.0)
    broker.tick(6.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.CANCELLED, reason="its caller has gone")]
    assert broker.counters.dispatched == 1


@pytest.mark.parametrize("way", RETURNS)
def test_orphan_that_is_given_back_within_its_grace_waits_for_the_rest_of_it(broker: CheckedBroker, way: str) -> None:
    """R18, R64."""
    attempt = broker.running(broker.worker(may_decline=True), attempts=3, orphan_grace=5.0)
    broker.operator.pause("s")
    broker.availability.caller_away(attempt.job.callers[0], 1.0)
    give_back(broker, attempt, way, 5.0)
    broker.run_until(5.9)
    assert attempt.job.state in (JobState.WAITING, JobState.DELAYED)
    broker.run_until(6.0)
    assert attempt.job.outcome is Outcome.CANCELLED


@pytest.mark.parametrize("way", RETURNS)
def test_running_call_whose_caller_is_back_is_started_again(broker: CheckedBroker, way: str) -> None:
    """R64: though its grace had been over meanwhile."""
    attempt = broker.running(broker.worker(may_decline=True), attempts=3, orphan_grace=5.0)
    other = broker.worker()
    broker.availability.caller_away(attempt.job.callers[0], 1.0)
    broker.run_until(10.0)
    broker.availability.caller_back(attempt.job.callers[0])
    give_back(broker, attempt, way, 10.0)
    broker.run_until(11.0)
    assert attempt_of(attempt.job).worker is other


@pytest.mark.parametrize("kind", ["unsaved", "stored", "keyed"])
def test_job_that_somebody_may_come_back_for_needs_no_caller(broker: CheckedBroker, kind: str) -> None:
    """R18, R24: as with a caller that has gone. A bug: a background job was cancelled."""
    if kind == "keyed":
        job = broker.call(key="k")
    else:
        job = broker.call(durable=True) if kind == "unsaved" else broker.store()
    broker.availability.caller_away(job.callers[0], 1.0)
    broker.run_until(100.0)
    assert job.state is JobState.WAITING


def test_patience_of_a_caller_out_of_reach_runs_on(broker: CheckedBroker) -> None:
    job = broker.call(deadline=3.0, orphan_grace=5.0)
    other = broker.call(queue_timeout=4.0, orphan_grace=5.0)
    for each in (job, other):
        broker.availability.caller_away(each.callers[0], 1.0)
    broker.run_until(4.0)
    assert (job.outcome, other.outcome) == (Outcome.TIMED_OUT, Outcome.TIMED_OUT)


def test_caller_that_has_gone_for_good_is_not_answered(broker: CheckedBroker, caller: Caller) -> None:
    """R18: disconnected first, then removed."""
    job = broker.call(caller=caller, orphan_grace=5.0)
    broker.availability.caller_away(job.callers[0], 1.0)
    broker.caller_gone(caller, 2.0)
    broker.run_until(100.0)
    assert (job.outcome, broker.take()) == (Outcome.CANCELLED, [])


@pytest.mark.parametrize("key", [None, "k"])
def test_job_that_has_ended_is_neither_orphaned_nor_adopted(
    broker: CheckedBroker, caller: Caller, key: str | None
) -> None:
    """D4, I9."""
    job = broker.call(caller=caller, key=key)
    broker.withdraw(job, 1.0)
    due = broker.next_deadline()
    broker.availability.caller_away(caller, 2.0)
    assert (job.orphan_due, broker.next_deadline()) == (inf, due)
    broker.availability.caller_back(caller)
    broker.tick(3.0)
    assert (job.outcome, broker.next_deadline()) == (Outcome.CANCELLED, due)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.CANCELLED, reason="withdrawn")]
