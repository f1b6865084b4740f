"""The time for which an outcome is kept (R136, L20): that of the policy, that of its job, or until it is deleted."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from dragoman.core.archive import FOREVER, SWEEP_FLOOR
from dragoman.core.effects import DeliverOutcome
from dragoman.core.model import ABSENT, Job
from dragoman.core.options import JobOptions
from dragoman.core.restore import StoredJob, restore
from dragoman.core.states import Outcome, RefusalReason
from dragoman.core.store_entries import DeleteJob, StoreJob

from .world import NOBODY, Caller, CheckedBroker, attempt_of


def done(broker: CheckedBroker, result: bytes = b"", *, now: float = 0.0, **more: Any) -> Job:
    """A background job that is done and stored."""
    worker = broker.worker(now=now)
    job = broker.store(now=now, **more)
    broker.take()
    broker.succeed(attempt_of(job), result, now)
    broker.leave(worker, now, "bye")
    broker.save_all(now)
    return job


@pytest.mark.parametrize(("keep", "end"), [(None, 86_400.0), (5.0, 5.0), (200_000.0, 200_000.0)])
def test_outcome_is_kept_for_the_time_of_its_job(broker: CheckedBroker, keep: float | None, end: float) -> None:
    """R136."""
    job = done(broker, keep=keep)
    broker.run_until(end - 0.1)
    assert job.id in broker.jobs
    broker.take()
    broker.run_until(end)
    assert (broker.jobs, broker.take()) == ({}, [DeleteJob(job)])


def test_quarantined_job_is_kept_at_least_as_long_as_the_policy_says(broker: CheckedBroker) -> None:
    """R136: a short time is meant for results."""
    for keep, until in ((5.0, 86_400.0), (0.0, 86_400.0), (100_000.0, 100_000.0)):
        worker = broker.worker()
        job = broker.store(keep=keep, attempts=1)
        broker.take()
        broker.fail(attempt_of(job), "poison", 0.0)
        broker.leave(worker, 0.0, "bye")
        assert (job.quarantined, job.keep_until) == (True, until)


def test_outcome_that_is_kept_until_deleted_has_no_timer_and_makes_no_room_for_others() -> None:
    """L20: it is exempt from the limit by bytes."""
    broker = CheckedBroker(max_outcome_bytes=3_000)
    forever = [done(broker, b"r" * 2_000, keep=inf) for _ in range(2)]
    others = [done(broker, b"r" * 1_500, now=1.0) for _ in range(3)]
    assert [job.id in broker.jobs for job in (*forever, *others)] == [True, True, False, False, True]
    broker.run_until(1e9)
    assert list(broker.jobs.values()) == forever
    assert [job.keep_until for job in forever] == [FOREVER, FOREVER]
    assert broker.next_deadline() == inf


def test_result_that_is_kept_until_deleted_is_in_the_store_only(broker: CheckedBroker, caller: Caller) -> None:
    """I5: memory does not grow with it. Callers that waited have it."""
    broker.job_registry.kept.has_store = True
    broker.worker()
    job = broker.store(keep=inf, caller=caller)
    broker.take()
    broker.succeed(attempt_of(job), b"result", 1.0)
    assert job.result == b"result"
    broker.save_all(1.0)
    assert broker.take()[-1] == DeliverOutcome(caller, job, Outcome.DONE, b"result")
    assert job.result is ABSENT


def test_result_stays_in_memory_while_the_store_cannot_write_it(broker: CheckedBroker) -> None:
    """R101."""
    broker.job_registry.kept.has_store = True
    broker.worker()
    job = broker.store(keep=inf)
    broker.take()
    broker.succeed(attempt_of(job), b"result", 1.0)
    broker.save_all(1.0, "disk full")
    assert job.result == b"result"


def test_number_of_jobs_that_are_kept_until_deleted_is_limited(caller: Caller) -> None:
    """L20: the refusal names the limit, and a deleted job makes room."""
    broker = CheckedBroker(max_kept_forever=2)
    first = done(broker, keep=inf)
    broker.store(keep=inf)
    broker.take()
    options = JobOptions(durable=True, waits=True, keep=inf)
    assert broker.submit("s", b"x", caller, options, 1.0) is None
    (refused,) = broker.take()
    assert isinstance(refused, DeliverOutcome)
    assert (refused.refusal, "max_kept_forever" in refused.reason) == (RefusalReason.BUSY, True)
    assert broker.counters.limits_reached == {"max_kept_forever": 1}
    broker.job_registry.kept.erase(first)
    assert broker.submit("s", b"x", caller, options, 2.0) is not None


def test_retry_of_a_job_that_is_kept_until_deleted_needs_room() -> None:
    """L20: the first job and its retry both count."""
    broker = CheckedBroker(max_kept_forever=1)
    worker = broker.worker()
    job = broker.store(keep=inf, attempts=1)
    broker.take()
    broker.fail(attempt_of(job), "poison", 1.0)
    broker.leave(worker, 1.0, "bye")
    broker.save_all(1.0)
    assert broker.operator.retry(job, 2.0) is None
    assert job.quarantined


def test_call_with_a_key_is_not_kept_longer_than_the_policy_says(broker: CheckedBroker) -> None:
    """It is in memory only, where nothing may stay for ever (I5)."""
    broker.worker()
    job = broker.call(key="k", keep=inf)
    broker.succeed(attempt_of(job), b"", 0.0)
    assert (job.keep_until, broker.job_registry.kept.forever) == (86_400.0, 0)


def test_short_outcomes_behind_a_long_one_take_no_room_after_their_end(broker: CheckedBroker) -> None:
    """I5. The order of deletion by size is that of the ends, so a job at its front may stay for years."""
    done(broker, keep=1e8)
    for number in range(10 * SWEEP_FLOOR):
        done(broker, now=float(number), keep=0.5)
        broker.run_until(number + 0.5)
    assert len(broker.jobs) == 1
    assert broker.job_registry.kept.archive.entries <= 1 + 2 * SWEEP_FLOOR


def test_retry_that_is_deleted_first_leaves_the_first_job_out_of_quarantine(broker: CheckedBroker) -> None:
    """R135, R136. In the store the first job was still in quarantine: after a restart it could have run once more."""
    worker = broker.worker()
    job = broker.store(keep=1.0, attempts=1)
    broker.take()
    broker.fail(attempt_of(job), "poison", 0.0)
    again = broker.operator.retry(job, 0.0)
    broker.save_all(0.0)
    broker.take()
    broker.succeed(attempt_of(again), b"", 0.0)
    broker.save_all(0.0)
    broker.leave(worker, 0.0, "bye")
    broker.take()
    broker.run_until(1.0)
    deleted, saved = broker.take()
    assert (deleted, job.retried_as) == (DeleteJob(again), None)
    assert isinstance(saved, StoreJob)
    assert (saved.job, saved.rewrites, job.quarantined) == (job, True, False)


def test_job_whose_outcome_is_not_kept_ends_together_with_its_retry(broker: CheckedBroker) -> None:
    """R136: in quarantine it was kept; its retry is done."""
    worker = broker.worker()
    job = broker.store(keep=0.0, attempts=1)
    broker.take()
    for now in (0.0, 1.0):
        broker.fail(attempt_of(job), "poison", now)
        job = broker.operator.retry(job, now)
        broker.save_all(now)
        broker.take()
    assert len(broker.jobs) == 3
    broker.succeed(attempt_of(job), b"", 2.0)
    broker.save_all(2.0)
    broker.leave(worker, 2.0, "bye")
    assert broker.jobs == {}


# -------------------------------------------------------------------- after a restart


@pytest.mark.parametrize(
    ("keep", "stored", "until"),
    [(None, 500.0, 500.0), (None, 1e9, 86_500.0), (1e6, 900_000.0, 900_000.0), (50.0, 1e9, 150.0), (inf, inf, FOREVER)],
)
def test_outcome_of_an_earlier_run_is_kept_on(keep: float | None, stored: float, until: float) -> None:
    """R25, R136: at most for its whole time from now, because the wall clock may have been set back."""
    broker = CheckedBroker()
    options = JobOptions(durable=True, waits=True, keep=keep)
    kept = StoredJob(1, b"j" * 16, "s", options, 0.0)  # type: ignore[arg-type]
    kept.outcome, kept.keep_until = Outcome.DONE, stored
    job = restore(broker.plain, kept, 100.0, NOBODY)
    assert (job.keep_until, broker.job_registry.kept.forever) == (until, int(keep == inf))
    broker.run_until(2e6)
    assert (job.id in broker.jobs) is (keep == inf)
