"""Attempts, back-off, deaths, quarantine."""

from __future__ import annotations

import pytest

from dragoman.core.effects import DeliverOutcome, SendJob
from dragoman.core.model import Job
from dragoman.core.states import AttemptRecord, JobState, Outcome, WorkerState
from dragoman.core.store_entries import StoreJob

from .world import Caller, CheckedBroker, attempt_of


def lose(broker: CheckedBroker, job: Job, now: float) -> None:
    """Its worker dies, and another one comes."""
    broker.save_all(now)
    broker.take()
    broker.leave(attempt_of(job).worker, now, "gone")
    broker.worker(now=now, name=f"w{len(job.history or [])}")


def quarantined(broker: CheckedBroker, payload: bytes = b"payload") -> Job:
    worker = broker.worker()
    job = broker.store(payload, attempts=1)
    broker.fail(attempt_of(job), "poison", 1.0)
    broker.leave(worker, 1.0, "gone")
    broker.save_all(1.0)
    broker.take()
    return job


def test_call_is_handed_out_once_unless_it_asks_for_more(broker: CheckedBroker) -> None:
    """D8, R9, I8."""
    attempt = broker.running()
    broker.fail(attempt, "no", 1.0)
    assert (attempt.job.outcome, broker.counters.dispatched) == (Outcome.FAILED, 1)


@pytest.mark.parametrize(
    ("wished", "caller_default", "worker_default", "limit"),
    [(None, 1, 1, 1), (None, 3, 1, 3), (None, 1, 3, 3), (None, 2, 3, 3), (2, 3, 3, 2), (1, 3, 3, 1), (4, 1, 1, 4)],
)
def test_number_of_attempts_is_the_jobs_own_or_the_larger_default(
    broker: CheckedBroker, wished: int | None, caller_default: int, worker_default: int, limit: int
) -> None:
    """D8."""
    broker.worker(attempts=worker_default)
    job = broker.call(attempts=wished, default_attempts=caller_default)
    while job.state is not JobState.ENDED:
        broker.fail(attempt_of(job), "no", broker.next_deadline())
        broker.run_until(job.start_at)
    assert (job.spent, broker.counters.dispatched) == (limit, limit)


def test_attempts_are_bounded() -> None:
    """L18."""
    broker = CheckedBroker(max_attempts=3)
    broker.worker()
    job = broker.call(attempts=100, job_timeout=1e9)
    while job.state is not JobState.ENDED:
        broker.fail(attempt_of(job), "no", job.start_at)
        broker.tick(job.start_at)
    assert job.spent == 3


def test_failed_attempt_is_followed_by_another_after_the_back_off(broker: CheckedBroker, caller: Caller) -> None:
    """D8, R11."""
    worker = broker.worker()
    job = broker.call(caller=caller, attempts=2)
    broker.take()
    broker.fail(attempt_of(job), "no", 1.0)
    assert (job.state, broker.take(), worker.state) == (JobState.DELAYED, [], WorkerState.IDLE)
    broker.tick(2.0)
    attempt = attempt_of(job)
    assert broker.take() == [SendJob(attempt)]
    assert attempt.number == 2
    broker.fail(attempt, "still no", 3.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.FAILED, reason="still no")]
    assert job.history == [
        AttemptRecord(1, "w", Outcome.FAILED, "no", 0.0, 1.0),
        AttemptRecord(2, "w", Outcome.FAILED, "still no", 2.0, 3.0),
    ]


def test_job_whose_run_time_was_over_goes_to_another_worker(broker: CheckedBroker) -> None:
    """R7, R12."""
    first, second = broker.worker(), broker.worker()
    job = broker.call(attempts=2, job_timeout=10.0)
    broker.take()
    broker.tick(10.0)
    broker.tick(11.0)
    assert (attempt_of(job).worker, first.state) == (second, WorkerState.STUCK)


def test_delays_double_up_to_the_cap(broker: CheckedBroker) -> None:
    """R11: min(60 s, 1 s × 2^(n-1))."""
    broker.worker()
    job = broker.call(attempts=10, job_timeout=1e9)
    delays, now = [], 0.0
    while job.state is not JobState.ENDED:
        broker.fail(attempt_of(job), "no", now)
        if job.state is JobState.DELAYED:
            delays.append(job.start_at - now)
            now = job.start_at
            broker.tick(now)
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


@pytest.mark.parametrize(("jitter", "delay"), [(-1.0, 0.8), (0.0, 1.0), (1.0, 1.2)])
def test_delay_varies_by_a_fifth(jitter: float, delay: float) -> None:
    """R11: ± 20 %, and the random source is injected."""
    broker = CheckedBroker(jitter=jitter)
    attempt = broker.running(attempts=2)
    broker.fail(attempt, "no", 0.0)
    assert attempt.job.start_at == pytest.approx(delay)


def test_first_retry_after_a_lost_worker_is_quick(broker: CheckedBroker) -> None:
    """R11."""
    broker.worker()
    job = broker.call(attempts=3, job_timeout=1e9)
    lose(broker, job, 0.0)
    assert job.start_at == pytest.approx(0.1)
    broker.tick(1.0)
    lose(broker, job, 1.0)
    assert job.start_at == pytest.approx(3.0)


def test_job_that_kills_its_workers_ends_after_three_deaths(broker: CheckedBroker, caller: Caller) -> None:
    """R10: min(attempts, max_worker_deaths)."""
    broker.worker()
    job = broker.call(caller=caller, attempts=50, job_timeout=1e9)
    for now in (0.0, 10.0, 20.0):
        lose(broker, job, now)
        broker.tick(now + 10.0)
    assert (job.outcome, job.deaths, job.spent) == (Outcome.LOST, 3, 3)
    assert DeliverOutcome(caller, job, Outcome.LOST, reason="gone") in broker.take()


def test_fewer_attempts_than_deaths_allowed_decide(broker: CheckedBroker) -> None:
    """R10: min(attempts, max_worker_deaths)."""
    broker.worker()
    job = broker.call(attempts=2)
    for now in (0.0, 10.0):
        lose(broker, job, now)
        broker.tick(now + 10.0)
    assert (job.outcome, job.deaths) == (Outcome.LOST, 2)


def test_failures_are_not_deaths(broker: CheckedBroker) -> None:
    """R10, I22."""
    broker.worker()
    job = broker.call(attempts=5)
    for now in (0.0, 10.0, 20.0):
        broker.fail(attempt_of(job), "no", now)
        broker.tick(now + 10.0)
    assert (job.state, job.deaths) == (JobState.RUNNING, 0)


def test_poison_job_does_not_stop_the_others(broker: CheckedBroker) -> None:
    """R10: it is at one worker at a time, and is delayed between attempts."""
    broker.worker()
    poison = broker.call(b"poison", attempts=3)
    other = broker.call(b"other")
    lose(broker, poison, 0.0)
    assert (poison.state, other.state) == (JobState.DELAYED, JobState.RUNNING)


def test_retry_counts_its_queue_time_anew(broker: CheckedBroker) -> None:
    worker = broker.worker()
    job = broker.running(worker, attempts=2, queue_timeout=5.0).job
    broker.leave(worker, 20.0, "gone")
    broker.tick(20.1)
    broker.tick(25.0)
    assert job.state is JobState.WAITING
    broker.tick(25.1)
    assert job.outcome is Outcome.TIMED_OUT


def test_retry_stands_where_its_arrival_puts_it(broker: CheckedBroker) -> None:
    """D7, R8: before those that came after it."""
    worker = broker.worker()
    job = broker.running(worker, attempts=2).job
    later = broker.call(now=1.0)
    broker.leave(worker, 2.0, "gone")
    broker.tick(3.0)
    broker.worker(now=3.0)
    assert (job.state, later.state) == (JobState.RUNNING, JobState.WAITING)


def test_refusals_in_between_spend_nothing(broker: CheckedBroker) -> None:
    """R8, R9."""
    worker = broker.worker(may_decline=True)
    job = broker.call(attempts=2)
    broker.attempts.refuse(attempt_of(job), 0.0)
    broker.idle(worker, 0.0)
    broker.fail(attempt_of(job), "no", 0.0)
    assert (job.state, job.spent, job.refusals) == (JobState.DELAYED, 1, 0)


# -------------------------------------------------------------------- quarantine


def test_background_job_whose_attempts_are_spent_is_quarantined(broker: CheckedBroker) -> None:
    """D8, I22: with its payload, the names, the reasons and the times."""
    job = quarantined(broker)
    assert (job.quarantined, job.state, job.payload) == (True, JobState.ENDED, b"payload")
    assert job.history == [AttemptRecord(1, "w", Outcome.FAILED, "poison", 0.0, 1.0)]
    assert job.ended == 1.0


def test_background_job_that_killed_three_workers_is_quarantined(broker: CheckedBroker) -> None:
    """R10."""
    broker.worker(name="w0")
    job = broker.store(attempts=10)
    for now in (0.0, 10.0, 20.0):
        lose(broker, job, now)
        broker.tick(now + 10.0)
    assert (job.quarantined, job.outcome) == (True, Outcome.LOST)
    assert [ending.worker for ending in job.history or []] == ["w0", "w1", "w2"]


def test_call_is_never_quarantined(broker: CheckedBroker) -> None:
    attempt = broker.running(key="k")
    broker.fail(attempt, "no", 1.0)
    assert not attempt.job.quarantined
    assert broker.operator.retry(attempt.job, 2.0) is None


@pytest.mark.parametrize("way", ["done", "cancelled", "deadline", "rejected"])
def test_background_job_that_ends_otherwise_is_not_quarantined(broker: CheckedBroker, way: str) -> None:
    """I22: no false entries; and its payload is not kept."""
    broker.worker()
    job = broker.store(deadline=50.0)
    attempt = attempt_of(job)
    broker.take()
    if way == "done":
        broker.succeed(attempt, b"", 1.0)
    elif way == "cancelled":
        broker.withdraw(job, 1.0)
    elif way == "rejected":
        broker.attempts.reject(attempt, "no", 1.0)
    else:
        broker.tick(50.0)
    assert (job.state, job.quarantined, job.payload) == (JobState.ENDED, False, b"")
    assert broker.operator.retry(job, 51.0) is None


def test_retry_makes_a_new_job_that_names_the_old_one(broker: CheckedBroker) -> None:
    job = quarantined(broker)
    again = broker.operator.retry(job, 2.0)
    assert again is not None
    assert broker.take() == [StoreJob(again, broker.last_save)]
    assert (again.retry_of, again.payload, again.options, again.spent) == (job.id, b"payload", job.options, 0)
    assert (job.state, again.id != job.id) == (JobState.ENDED, True)
    broker.save_all(2.0)
    broker.worker(now=3.0)
    assert again.state is JobState.RUNNING


def test_retry_is_refused_while_the_broker_drains(broker: CheckedBroker) -> None:
    job = quarantined(broker)
    broker.operator.close(2.0)
    assert broker.operator.retry(job, 3.0) is None


def test_retry_of_a_forgotten_job_makes_nothing(broker: CheckedBroker) -> None:
    job = quarantined(broker)
    broker.tick(1.0 + broker.policy.outcome_retention)
    assert broker.operator.retry(job, 1e6) is None


@pytest.mark.parametrize("policy", [{"max_jobs": 1}, {"max_jobs_per_service": 1}, {"max_memory": 10}])
def test_retry_obeys_the_bounds(policy: dict[str, int]) -> None:
    """R15. A bug: a quarantined job could be retried without end, beyond every limit."""
    broker = CheckedBroker(**policy)
    job, other = quarantined(broker), quarantined(broker)
    assert broker.operator.retry(job, 2.0) is not None
    broker.save_all(2.0)
    assert broker.operator.retry(other, 3.0) is None


def test_retried_job_leaves_the_quarantine_and_is_not_retried_again(broker: CheckedBroker) -> None:
    """A job could be retried twice, once its retry had failed: both were in quarantine then, and both made new jobs."""
    job = quarantined(broker)
    again = broker.operator.retry(job, 2.0)
    assert again is not None
    assert (job.quarantined, job.retried_as) == (False, again.id)
    assert broker.operator.retry(job, 2.0) is None
    broker.save_all(2.0)
    broker.worker(now=3.0)
    broker.fail(attempt_of(again), "poison", 4.0)
    assert (again.quarantined, again.retried_as, broker.operator.retry(job, 5.0)) == (True, None, None)
    third = broker.operator.retry(again, 5.0)
    assert third is not None
    assert (third.retry_of, again.retried_as, job.retried_as) == (again.id, third.id, again.id)
    broker.save_all(5.0)
    broker.run_until(4.0 + broker.policy.outcome_retention)
    assert broker.jobs == {third.id: third}


def test_retry_that_could_not_be_written_down_leaves_the_job_in_quarantine(broker: CheckedBroker) -> None:
    job = quarantined(broker)
    again = broker.operator.retry(job, 2.0)
    assert again is not None
    broker.store_reports.saved(broker.last_save, 2.0, "full")
    assert again.id not in broker.jobs
    assert (job.quarantined, job.retried_as) == (True, None)
    assert broker.operator.retry(job, 3.0) is not None


def test_retry_does_not_wait_for_the_delay_again(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.store(delay=60.0, attempts=1)
    broker.run_until(60.0)
    broker.fail(attempt_of(job), "no", 61.0)
    broker.save_all(61.0)
    again = broker.operator.retry(job, 62.0)
    assert again is not None
    broker.save_all(62.0)
    assert again.state is JobState.RUNNING


def test_job_brings_its_own_back_off(broker: CheckedBroker) -> None:
    """R11, per job: first delay, doubled, up to its maximum."""
    broker.worker()
    job = broker.call(attempts=5, retry_first=4.0, retry_cap=10.0, retry_jitter=0.0)
    rests = []
    for _ in range(4):
        now = job.arrival if not rests else job.start_at
        broker.run_until(now)
        broker.fail(attempt_of(job), "no", now)
        rests.append(job.start_at - now)
    assert rests == [4.0, 8.0, 10.0, 10.0]


@pytest.mark.parametrize(("jitter", "rest"), [(1.0, 6.0), (-1.0, 2.0), (0.0, 4.0)])
def test_job_brings_its_own_jitter(jitter: float, rest: float) -> None:
    broker = CheckedBroker(jitter)
    broker.worker()
    job = broker.call(attempts=2, retry_first=4.0, retry_jitter=0.5)
    broker.fail(attempt_of(job), "no", 0.0)
    assert job.start_at == rest
