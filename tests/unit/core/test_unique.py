"""The time for which a job holds its idempotency key (R24): until it starts, until it ends, or while it is kept."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.core.effects import DeliverOutcome
from dragoman.core.model import Job
from dragoman.core.options import JobOptions
from dragoman.core.restore import StoredJob, restore
from dragoman.core.states import JobState, Outcome, Unique

from .world import NOBODY, Caller, CheckedBroker, attempt_of, caller_of, principal_of

WAITING, UNFINISHED, KEPT = Unique.WAITING, Unique.UNFINISHED, Unique.KEPT


def submit(broker: CheckedBroker, payload: bytes = b"x", *, now: float = 1.0, **more: Any) -> Job:
    """A second submit with the key `k`."""
    return broker.store(payload, key="k", now=now, **more)


HELD = {
    WAITING: {"waiting": True, "delayed": True, "running": False, "ended": False},
    UNFINISHED: {"waiting": True, "delayed": True, "running": True, "ended": False},
    KEPT: {"waiting": True, "delayed": True, "running": True, "ended": True},
}


@pytest.mark.parametrize("unique", HELD)
@pytest.mark.parametrize("state", ["waiting", "delayed", "running", "ended"])
def test_key_is_held_as_long_as_the_job_says(broker: CheckedBroker, unique: Unique, state: str) -> None:
    """R24."""
    job = submit(broker, unique=unique, delay=50.0 if state == "delayed" else 0.0, now=0.0)
    if state in ("running", "ended"):
        broker.worker()
        broker.save_all()
        broker.take()
    if state == "ended":
        broker.succeed(attempt_of(job), b"", 0.5)
    assert job.state == state
    assert (submit(broker, unique=unique) is job) is HELD[unique][state]


def test_job_that_waits_for_its_retry_has_started(broker: CheckedBroker) -> None:
    """R24: a second job with the key waits beside it."""
    broker.worker()
    first = submit(broker, unique=WAITING, attempts=2)
    broker.take()
    broker.fail(attempt_of(first), "not now", 1.0)
    assert first.state is JobState.DELAYED
    assert submit(broker, unique=WAITING, attempts=2) is not first


def test_job_that_waits_for_its_retry_is_unfinished(broker: CheckedBroker) -> None:
    broker.worker()
    first = submit(broker, unique=UNFINISHED, attempts=2)
    broker.take()
    broker.fail(attempt_of(first), "not now", 1.0)
    assert submit(broker, unique=UNFINISHED, attempts=2) is first


def test_job_that_no_worker_was_sent_has_not_started(broker: CheckedBroker, caller: Caller) -> None:
    """R8, R108: it has a worker, and waits for its commit; or the worker left before it was sent."""
    worker = broker.worker()
    first = broker.call(key="k", unique=WAITING, durable=True)
    assert first.state is JobState.RUNNING
    assert broker.call(caller=caller, key="k", unique=WAITING, durable=True) is first
    broker.leave(worker, 1.0, "gone")
    assert (first.state, first.spent) == (JobState.WAITING, 0)
    assert broker.call(key="k", unique=WAITING, durable=True) is first


def test_job_that_its_worker_gives_back_holds_its_key_again(broker: CheckedBroker) -> None:
    """R133: it has used up no attempt."""
    broker.worker()
    first = submit(broker, unique=WAITING)
    broker.take()
    broker.attempts.give_back(attempt_of(first), 1.0, delay=10.0)
    assert submit(broker, unique=WAITING) is first


@pytest.mark.parametrize("unique", [WAITING, UNFINISHED])
def test_key_that_no_job_holds_may_come_with_another_payload(broker: CheckedBroker, unique: Unique) -> None:
    """R24: the payload is compared only with that of the job that holds the key."""
    broker.worker()
    first = submit(broker, b"one", unique=unique)
    refused = broker.submit("s", b"two", Caller(), JobOptions(durable=True, unique=unique), 1.0, key="k")
    assert (refused is None) is (unique is UNFINISHED or not attempt_of(first).is_sent)
    broker.take()
    broker.succeed(attempt_of(first), b"", 1.0)
    broker.save_all(1.0)
    assert submit(broker, b"two", unique=unique).digest != first.digest


def test_job_that_has_the_key_decides_how_long(broker: CheckedBroker, caller: Caller) -> None:
    """R24: not the submit that comes later."""
    broker.worker()
    first = submit(broker, unique=KEPT)
    broker.take()
    broker.succeed(attempt_of(first), b"result", 1.0)
    broker.save_all(1.0)
    broker.take()
    assert submit(broker, unique=WAITING, caller=caller) is first
    assert broker.take() == [DeliverOutcome(caller, first, Outcome.DONE, b"result")]


def test_keys_of_two_principals_and_of_two_services_are_unrelated(broker: CheckedBroker) -> None:
    """R24, R177."""
    web = caller_of(principal_of(broker, "web"))
    jobs = [
        submit(broker, unique=UNFINISHED),
        submit(broker, unique=UNFINISHED, caller=web),
        submit(broker, unique=UNFINISHED, service="t"),
    ]
    assert len({job.id for job in jobs}) == 3
    assert submit(broker, unique=UNFINISHED, caller=web) is jobs[1]


def test_latest_job_with_a_key_is_found(broker: CheckedBroker) -> None:
    """I23: after it is deleted, the one before it."""
    kept = broker.job_registry.kept
    jobs = []
    for number in range(3):
        broker.worker(now=float(number))
        jobs.append(submit(broker, unique=WAITING, now=float(number), keep=100.0 - number))
        broker.take()
    for job in jobs:
        assert job.state is JobState.RUNNING
        broker.succeed(attempt_of(job), b"", 5.0)
    broker.save_all(5.0)
    found = []
    while (latest := kept.keys.find("local", "s", "k")) is not None:
        found.append(latest)
        kept.erase(latest)
    assert found == jobs[::-1]


# -------------------------------------------------------------------- jobs in quarantine


def in_quarantine(broker: CheckedBroker, **more: Any) -> Job:
    worker = broker.worker()
    job = broker.store(key="k", attempts=1, **more)
    broker.take()
    broker.fail(attempt_of(job), "poison", 1.0)
    broker.save_all(1.0)
    broker.leave(worker, 1.0, "bye")
    broker.take()
    assert job.quarantined
    return job


def test_retry_has_the_key_of_the_job_that_it_retries(broker: CheckedBroker, caller: Caller) -> None:
    """R24: whoever repeats the submit waits for the retry, and does not get the failure."""
    job = in_quarantine(broker)
    again = broker.operator.retry(job, 2.0)
    assert (again.key, again.digest) == ("k", job.digest)
    assert submit(broker, caller=caller, now=3.0, attempts=1) is again


def test_retry_is_refused_while_another_job_holds_the_key(broker: CheckedBroker) -> None:
    """R24: never two unfinished jobs with one key."""
    job = in_quarantine(broker, unique=UNFINISHED)
    second = submit(broker, b"other", unique=UNFINISHED)
    assert second is not job
    assert (broker.operator.retry(job, 2.0), broker.operator.release(job, 2.0)) == (None, False)
    assert broker.job_registry.kept.key_taken_from(job) is second
    broker.withdraw(second, 3.0)
    assert broker.operator.release(job, 3.0) is False  # a later job has its key
    assert broker.operator.retry(job, 3.0) is not None


def test_retry_that_the_store_cannot_write_leaves_the_key_to_the_first_job(broker: CheckedBroker) -> None:
    """R101."""
    job = in_quarantine(broker)
    again = broker.operator.retry(job, 2.0)
    broker.save_all(2.0, "disk full")
    assert (again.id in broker.jobs, job.quarantined) == (False, True)
    assert broker.job_registry.kept.first_with(job.owner, job.service, "k") is job


def test_key_is_free_when_the_retry_is_deleted(broker: CheckedBroker) -> None:
    """R24, R136: the first job stays, without its key."""
    job = in_quarantine(broker, keep=10.0)
    again = broker.operator.retry(job, 2.0)
    broker.worker(now=2.0)
    broker.save_all(2.0)
    broker.take()
    broker.succeed(attempt_of(again), b"", 3.0)
    broker.save_all(3.0)
    broker.run_until(14.0)
    assert (again.id in broker.jobs, job.id in broker.jobs) == (False, True)
    assert (job.key, job.retried_as, job.quarantined) == (None, None, False)
    assert submit(broker, b"other", now=15.0) is not job


# -------------------------------------------------------------------- after a restart


def stored(number: int, unique: Unique = WAITING, **facts: Any) -> StoredJob:
    options = JobOptions(durable=True, waits=True, attempts=3, unique=unique)
    kept = StoredJob(number, bytes([number]) * 16, "s", options, 10.0 * number)  # type: ignore[arg-type]
    kept.key, kept.digest = "k", b"d" * 16
    for name, value in facts.items():
        setattr(kept, name, value)
    return kept


def test_latest_job_has_the_key_after_a_restart_even_if_it_ended_first() -> None:
    """R24, I23: the order is that of the submits."""
    broker = CheckedBroker()
    long = restore(broker.plain, stored(1, token=b"t" * 16, attempt=1, can_resume=True), 100.0, NOBODY)
    short = restore(broker.plain, stored(2, outcome=Outcome.DONE, keep_until=200.0), 100.0, NOBODY)
    kept = broker.job_registry.kept
    assert (long.state, kept.keys.find("local", "s", "k")) == (JobState.RUNNING, short)
    assert kept.first_with(long.owner, long.service, "k") is None
    broker.run_until(200.0)
    assert kept.keys.find("local", "s", "k") is long


def test_job_that_waited_before_a_restart_holds_its_key_after_it() -> None:
    """R24: an attempt that was used up does not come back."""
    broker = CheckedBroker()
    fresh = restore(broker.plain, stored(1), 100.0, NOBODY)
    kept = broker.job_registry.kept
    assert kept.first_with(fresh.owner, fresh.service, "k") is fresh
    started = restore(broker.plain, stored(2, spent=1), 100.0, NOBODY)
    assert kept.first_with(started.owner, started.service, "k") is None
