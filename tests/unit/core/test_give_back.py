"""Attempts that are given back or get more time, jobs that leave the quarantine, outcomes that are not kept."""

from __future__ import annotations

import pytest

from dragoman.core.effects import CancelAttempt, DeliverOutcome
from dragoman.core.restore import StoredJob, restore
from dragoman.core.states import JobState, Outcome, WorkerState
from dragoman.core.store_entries import DeleteJob, StoreJob

from .world import NOBODY, Caller, CheckedBroker, attempt_of


def test_job_that_is_given_back_waits_again_and_no_attempt_is_spent(broker: CheckedBroker) -> None:
    """R133; another worker is preferred (R12)."""
    worker, other = broker.worker(), broker.worker()
    attempt = broker.running(worker)
    assert broker.attempts.give_back(attempt, 1.0)
    assert (attempt.job.spent, attempt_of(attempt.job).worker, worker.state) == (0, other, WorkerState.IDLE)


def test_worker_that_gives_a_job_back_is_the_last_of_the_idle(broker: CheckedBroker) -> None:
    """R133, D7: the job finds its next worker first; that one has a free slot, and has been idle longer."""
    worker, other = broker.worker(), broker.worker(capacity=2)
    broker.attempts.give_back(broker.running(worker), 1.0)
    assert [attempt_of(broker.call(now=2.0)).worker for _ in range(2)] == [other, worker]


def test_job_that_is_given_back_with_a_delay_rests_so_long(broker: CheckedBroker) -> None:
    """R133."""
    attempt = broker.running(broker.worker())
    broker.attempts.give_back(attempt, 1.0, delay=5.0)
    broker.tick(5.9)
    assert attempt.job.state is JobState.DELAYED
    broker.tick(6.0)
    assert attempt.job.state is JobState.RUNNING


def test_job_that_is_given_back_keeps_its_place_among_equals(broker: CheckedBroker) -> None:
    worker = broker.worker()
    attempt = broker.running(worker)
    later = broker.call(now=1.0)
    broker.attempts.give_back(attempt, 2.0)
    assert (attempt_of(attempt.job).worker, later.attempt) == (worker, None)


def test_job_that_is_given_back_with_a_lower_priority_lets_others_pass(broker: CheckedBroker) -> None:
    """R133."""
    attempt = broker.running(broker.worker())
    later = broker.call(now=1.0)
    broker.attempts.give_back(attempt, 2.0, priority=2)
    assert (attempt.job.attempt, later.state) == (None, JobState.RUNNING)
    assert attempt.job.options.priority == 2


def test_priority_that_does_not_exist_changes_nothing(broker: CheckedBroker) -> None:
    attempt = broker.running(broker.worker())
    with pytest.raises(ValueError, match="priority 10 is not between 0 and 9"):
        broker.attempts.give_back(attempt, 1.0, priority=10)
    assert attempt.job.attempt is attempt


def test_job_that_is_given_back_may_use_up_an_attempt(broker: CheckedBroker, caller: Caller) -> None:
    """R133, D8: after the last one it has failed."""
    attempt = broker.running(broker.worker(), caller=caller, attempts=2)
    broker.attempts.give_back(attempt, 1.0, delay=3.0, spends=True)
    assert (attempt.job.spent, attempt.job.state, attempt.job.start_at) == (1, JobState.DELAYED, 4.0)
    broker.tick(4.0)
    broker.take()
    broker.attempts.give_back(attempt_of(attempt.job), 5.0, spends=True)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.FAILED, reason="given back by its worker")]


def test_stored_job_that_is_given_back_is_stored_as_it_is_then(broker: CheckedBroker) -> None:
    """R108; a priority that has changed is stored with the job itself."""
    broker.worker()
    job = broker.store(attempts=3)
    broker.save_all()
    broker.take()
    broker.attempts.give_back(attempt_of(job), 1.0, delay=60.0, priority=7)
    first, second = broker.take()
    assert isinstance(first, StoreJob)
    assert isinstance(second, StoreJob)
    assert (first.rewrites, second.rewrites, first.job, second.job) == (True, False, job, job)


def test_call_that_is_given_back_after_its_caller_has_gone_is_not_started_again(
    broker: CheckedBroker, caller: Caller
) -> None:
    """R18."""
    attempt = broker.running(broker.worker(), caller=caller)
    broker.caller_gone(caller, 1.0)
    broker.attempts.give_back(attempt, 2.0)
    assert attempt.job.outcome is Outcome.CANCELLED


def test_call_that_is_given_back_while_the_broker_drains_is_refused(broker: CheckedBroker) -> None:
    attempt = broker.running(broker.worker())
    broker.operator.close(1.0)
    broker.attempts.give_back(attempt, 2.0)
    assert attempt.job.outcome is Outcome.REFUSED


def test_attempt_that_is_over_is_given_back_in_vain_and_frees_its_worker(broker: CheckedBroker) -> None:
    """D2, D11."""
    worker = broker.worker()
    attempt = broker.running(worker)
    broker.withdraw(attempt.job, 1.0)
    assert worker.state is WorkerState.STUCK
    assert not broker.attempts.give_back(attempt, 2.0)
    assert (worker.state, attempt.job.outcome) == (WorkerState.IDLE, Outcome.CANCELLED)
    assert not broker.attempts.give_back(attempt, 3.0)


# -------------------------------------------------------------------- extend


def test_attempt_that_is_extended_is_over_later(broker: CheckedBroker) -> None:
    """R134, R6: it concerns the job, not its worker's lease."""
    attempt = broker.running(broker.worker(), job_timeout=10.0)
    assert broker.attempts.extend(attempt, 10.0, 8.0)
    broker.run_until(17.9)
    assert attempt.job.state is JobState.RUNNING
    broker.run_until(18.0)
    assert attempt.job.outcome is Outcome.TIMED_OUT


def test_attempt_can_be_given_less_time(broker: CheckedBroker) -> None:
    attempt = broker.running(broker.worker(), job_timeout=100.0)
    broker.attempts.extend(attempt, 1.0, 8.0)
    assert broker.next_deadline() == 9.0
    broker.tick(9.0)
    assert any(isinstance(effect, CancelAttempt) for effect in broker.take())


def test_attempt_that_is_over_cannot_be_extended(broker: CheckedBroker) -> None:
    attempt = broker.running(broker.worker(), job_timeout=10.0)
    broker.tick(10.0)
    assert not broker.attempts.extend(attempt, 60.0, 11.0)


def test_patience_of_the_caller_is_not_extended(broker: CheckedBroker) -> None:
    attempt = broker.running(broker.worker(), deadline=10.0)
    broker.attempts.extend(attempt, 60.0, 8.0)
    broker.run_until(10.0)
    assert attempt.job.outcome is Outcome.TIMED_OUT


# -------------------------------------------------------------------- release


def in_quarantine(broker: CheckedBroker, **more: object):  # type: ignore[no-untyped-def]
    worker = broker.worker()
    job = broker.store(b"payload", attempts=1, **more)
    broker.save_all()
    broker.fail(attempt_of(job), "no", 1.0)
    broker.save_all(1.0)
    broker.leave(worker, 1.0, "gone")
    broker.take()
    assert job.quarantined
    return job


def test_job_that_is_released_is_tried_again_under_its_id(broker: CheckedBroker) -> None:
    """R135: it has all its attempts again, and its history stays."""
    job = in_quarantine(broker, key="k")
    assert broker.operator.release(job, 2.0)
    assert (job.state, job.outcome, job.quarantined, job.spent) == (JobState.WAITING, None, False, 0)
    assert [ending.reason for ending in job.history] == ["no"]
    broker.worker(now=3.0)
    broker.save_all(3.0)
    assert (attempt_of(job).number, job.payload) == (1, b"payload")
    broker.succeed(attempt_of(job), b"result", 4.0)
    broker.save_all(4.0)
    assert (job.outcome, job.result, broker.call(b"payload", key="k", durable=True)) == (
        Outcome.DONE,
        b"result",
        job,
    )


def test_release_is_stored(broker: CheckedBroker) -> None:
    job = in_quarantine(broker)
    broker.operator.release(job, 2.0)
    (save,) = broker.take()
    assert isinstance(save, StoreJob)
    assert save.job is job


def test_job_that_is_not_in_quarantine_is_not_released(broker: CheckedBroker) -> None:
    waiting = broker.store()
    assert not broker.operator.release(waiting, 1.0)
    job = in_quarantine(CheckedBroker())
    assert not broker.operator.release(job, 1.0)  # another broker's


def test_job_that_was_retried_is_not_released(broker: CheckedBroker) -> None:
    """Its payload lives on in another job."""
    job = in_quarantine(broker)
    assert broker.operator.retry(job, 2.0) is not None
    assert not broker.operator.release(job, 3.0)


def test_job_is_not_released_where_there_is_no_room() -> None:
    """R15."""
    broker = CheckedBroker(max_jobs=1)
    job = in_quarantine(broker)
    other = broker.call(now=2.0)
    assert not broker.operator.release(job, 2.0)
    broker.withdraw(other, 3.0)
    assert broker.operator.release(job, 3.0)


def test_job_is_not_released_while_the_broker_drains(broker: CheckedBroker) -> None:
    job = in_quarantine(broker)
    broker.operator.close(2.0)
    assert not broker.operator.release(job, 2.0)
    assert job.quarantined


def test_job_that_is_released_can_come_into_quarantine_again(broker: CheckedBroker) -> None:
    """I8, I22."""
    job = in_quarantine(broker)
    broker.operator.release(job, 2.0)
    worker = broker.worker(now=2.0)
    broker.save_all(2.0)
    broker.take()
    broker.leave(worker, 3.0, "gone")
    assert (job.quarantined, job.outcome, job.spent) == (True, Outcome.LOST, 1)
    assert [(ending.number, ending.reason) for ending in job.history] == [(1, "no"), (1, "gone")]


# -------------------------------------------------------------------- outcomes that are not kept


def test_stored_job_whose_outcome_is_not_kept_is_erased_when_it_is_done(broker: CheckedBroker, caller: Caller) -> None:
    """R136, R103: its caller gets the outcome first, and that after the commit."""
    broker.worker()
    job = broker.store(caller=caller, keep=0.0, key="k")
    broker.save_all()
    broker.take()
    broker.succeed(attempt_of(job), b"result", 1.0)
    assert [type(effect) for effect in broker.take()] == [StoreJob]
    broker.save_all(1.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.DONE, b"result"), DeleteJob(job)]
    assert (job.id in broker.jobs, job.alarm) == (False, float("inf"))
    assert broker.call(key="k", durable=True, now=2.0) is not job


def test_quarantined_job_whose_outcome_is_not_kept_stays(broker: CheckedBroker) -> None:
    """R136."""
    job = in_quarantine(broker, keep=0.0)
    assert (job.id in broker.jobs, job.is_archived) == (True, True)


def test_call_whose_outcome_is_not_kept_frees_its_key_at_its_end(broker: CheckedBroker, caller: Caller) -> None:
    """R24, R136."""
    broker.worker()
    job = broker.call(caller=caller, key="k", keep=0.0)
    broker.take()
    broker.succeed(attempt_of(job), b"result", 1.0)
    assert (broker.take(), broker.jobs) == ([DeliverOutcome(caller, job, Outcome.DONE, b"result")], {})


def test_stored_job_that_ended_just_before_a_crash_is_erased_after_it(broker: CheckedBroker) -> None:
    """R136."""
    first = broker.store(keep=0.0)
    broker.withdraw(first, 0.0)
    kept = StoredJob(7, first.id, "s", first.options, 0.0)
    kept.outcome, kept.keep_until = Outcome.DONE, 90.0
    broker = CheckedBroker()
    job = restore(broker.plain, kept, 1.0, NOBODY)
    assert (broker.take(), broker.jobs) == ([DeleteJob(job)], {})
