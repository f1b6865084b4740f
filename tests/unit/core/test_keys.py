"""Idempotency keys (R24): the same submit twice is one job."""

from __future__ import annotations

import pytest

from dragoman.core.effects import DeliverOutcome
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.options import JobOptions
from dragoman.core.states import JobState, Outcome, RefusalReason
from dragoman.core.store_entries import StoreJob

from .world import Caller, CheckedBroker, attempt_of


@pytest.fixture
def other() -> Caller:
    return Caller("other")


def test_same_key_joins_a_waiting_job(broker: CheckedBroker, caller: Caller, other: Caller) -> None:
    """R24."""
    job = broker.call(caller=caller, key="k")
    assert broker.call(caller=other, key="k") is job
    assert (broker.job_registry.present, broker.counters.accepted) == (1, 1)


def test_same_key_joins_a_running_job_and_both_are_answered(
    broker: CheckedBroker, caller: Caller, other: Caller
) -> None:
    """R24, I4: one answer a submission."""
    broker.worker()
    job = broker.call(caller=caller, key="k")
    assert broker.call(caller=other, key="k") is job
    broker.take()
    broker.succeed(attempt_of(job), b"result", 1.0)
    assert broker.take() == [
        DeliverOutcome(caller, job, Outcome.DONE, b"result"),
        DeliverOutcome(other, job, Outcome.DONE, b"result"),
    ]
    assert broker.counters.dispatched == 1


def test_same_key_is_told_the_outcome_of_an_ended_job(broker: CheckedBroker, other: Caller) -> None:
    """R24."""
    broker.worker()
    job = broker.call(key="k")
    broker.succeed(attempt_of(job), b"result", 1.0)
    broker.take()
    assert broker.call(caller=other, key="k", now=2.0) is job
    assert broker.take() == [DeliverOutcome(other, job, Outcome.DONE, b"result")]


@pytest.mark.parametrize("way", ["failed", "lost", "cancelled", "timed out"])
def test_same_key_is_told_any_outcome(broker: CheckedBroker, other: Caller, way: str) -> None:
    """R24, D4."""
    worker = broker.worker()
    attempt = broker.running(worker, key="k", payload=b"x")
    if way == "failed":
        broker.fail(attempt, "why", 1.0)
    elif way == "lost":
        broker.leave(worker, 1.0, "why")
    elif way == "cancelled":
        broker.withdraw(attempt.job, 1.0, "why")
    else:
        broker.tick(60.0)
    broker.take()
    broker.call(caller=other, key="k", now=61.0)
    (answer,) = broker.take()
    assert isinstance(answer, DeliverOutcome)
    assert (answer.caller, answer.job, answer.outcome) == (other, attempt.job, Outcome(way))


@pytest.mark.parametrize("ended", [False, True])
def test_same_key_with_another_payload_is_refused(broker: CheckedBroker, other: Caller, ended: bool) -> None:
    """R24: the hash is kept when the payload no longer is."""
    broker.worker()
    job = broker.call(b"one", key="k")
    if ended:
        broker.succeed(attempt_of(job), b"", 1.0)
    broker.take()
    assert broker.submit("s", b"two", other, JobOptions(), 2.0, key="k") is None
    assert broker.take() == [
        DeliverOutcome(
            other,
            None,
            Outcome.REFUSED,
            reason="key reused: 'k' came with another payload before",
            refusal=RefusalReason.KEY_REUSED,
        )
    ]


def test_background_job_does_not_join_a_call(broker: CheckedBroker, caller: Caller) -> None:
    """It would be acknowledged without being stored."""
    broker.call(b"x", key="k", waits=True)
    broker.take()
    assert broker.submit("s", b"x", caller, JobOptions(durable=True, waits=True), 1.0, key="k") is None
    (told,) = broker.take()
    assert isinstance(told, DeliverOutcome)
    assert told.refusal is RefusalReason.KEY_REUSED


def test_same_key_at_another_service_is_another_job(broker: CheckedBroker) -> None:
    """R24: the scope is the service."""
    assert broker.call(key="k") is not broker.call(key="k", service="other")


def test_key_is_forgotten_with_the_outcome(broker: CheckedBroker) -> None:
    """R24: kept `outcome_retention`."""
    broker.worker()
    job = broker.call(key="k")
    broker.succeed(attempt_of(job), b"", 1.0)
    broker.tick(86_401.0)
    assert broker.jobs == {}
    assert broker.call(b"other payload", key="k", now=86_402.0) is not job


def test_call_with_a_key_is_erased_without_a_word_to_the_store(broker: CheckedBroker) -> None:
    broker.worker()
    broker.succeed(attempt_of(broker.call(key="k")), b"", 1.0)
    broker.take()
    broker.tick(86_401.0)
    assert (broker.take(), broker.counters.erased) == ([], 1)


def test_outcomes_of_keys_are_bounded_by_bytes() -> None:
    """L20: the oldest key is forgotten first."""
    broker = CheckedBroker(max_outcome_bytes=1_000_000)
    broker.worker()
    jobs = {}
    for key in "abc":
        jobs[key] = broker.call(key=key)
        broker.succeed(attempt_of(jobs[key]), b"r" * 400_000, 1.0)
    assert broker.call(key="b") is jobs["b"]
    assert broker.call(key="c") is jobs["c"]
    assert broker.call(key="a") is not jobs["a"]


@pytest.mark.parametrize("key", ["", "k" * 257, "é" * 129])
def test_impossible_key_is_invalid(broker: CheckedBroker, caller: Caller, key: str) -> None:
    """L3."""
    assert broker.submit("s", b"x", caller, JobOptions(waits=True), 0.0, key=key) is None
    assert broker.take() == [
        DeliverOutcome(
            caller,
            None,
            Outcome.REFUSED,
            reason="invalid: a key is 1 to 256 bytes of visible text",
            refusal=RefusalReason.INVALID,
        )
    ]


def test_key_that_cannot_be_written_is_invalid(broker: CheckedBroker, caller: Caller) -> None:
    """D6. A bug: a lone surrogate, as JSON can carry it, was an exception out of `submit`."""
    assert broker.submit("s", b"x", caller, JobOptions(waits=True), 0.0, key="\ud800") is None
    (answer,) = broker.take()
    assert isinstance(answer, DeliverOutcome)
    assert answer.refusal is RefusalReason.INVALID


def test_key_of_a_refused_job_is_free(caller: Caller) -> None:
    """R15, R24."""
    broker = CheckedBroker(max_jobs=1)
    first = broker.call()
    assert broker.submit("s", b"x", caller, JobOptions(waits=True), 0.0, key="k") is None
    broker.withdraw(first, 0.0)
    assert broker.call(b"other", key="k").state is JobState.WAITING


def test_joining_counts_against_no_bound() -> None:
    """R15: it is no new job."""
    broker = CheckedBroker(max_jobs=1)
    job = broker.call(key="k")
    assert broker.call(key="k") is job


def test_job_with_a_key_outlives_its_caller(broker: CheckedBroker, caller: Caller, other: Caller) -> None:
    """R18, R24: the caller may return."""
    job = broker.call(caller=caller, key="k")
    broker.caller_gone(caller, 1.0)
    assert broker.call(caller=other, key="k", now=2.0) is job
    broker.worker(now=3.0)
    broker.take()
    broker.succeed(attempt_of(job), b"result", 4.0)
    assert broker.take() == [DeliverOutcome(other, job, Outcome.DONE, b"result")]


# -------------------------------------------------------------------- background jobs with a key


def test_joining_an_unsaved_background_job_is_accepted_with_it(
    broker: CheckedBroker, caller: Caller, other: Caller
) -> None:
    """R24, I3: not before the commit."""
    job = broker.call(caller=caller, durable=True, key="k")
    assert broker.call(caller=other, durable=True, key="k") is job
    assert broker.take() == [StoreJob(job, 1)]
    broker.store_reports.saved(1, 1.0)
    assert broker.take() == [Acknowledge(caller, job), Acknowledge(other, job)]


@pytest.mark.parametrize("state", [JobState.WAITING, JobState.DELAYED, JobState.RUNNING])
def test_joining_a_saved_background_job_is_accepted_at_once(
    broker: CheckedBroker, other: Caller, state: JobState
) -> None:
    """R24."""
    if state is JobState.RUNNING:
        broker.worker()
    job = broker.store(key="k", delay=5.0 if state is JobState.DELAYED else 0.0)
    broker.take()
    assert job.state is state
    assert broker.call(caller=other, durable=True, key="k", now=1.0) is job
    assert broker.take() == [Acknowledge(other, job)]


def test_joining_an_ended_background_job_is_answered(broker: CheckedBroker, other: Caller) -> None:
    """R24."""
    broker.worker()
    job = broker.store(key="k")
    broker.succeed(attempt_of(job), b"result", 1.0)
    broker.save_all(1.0)
    broker.take()
    broker.call(caller=other, durable=True, key="k", now=2.0)
    assert broker.take() == [DeliverOutcome(other, job, Outcome.DONE, b"result")]


def test_joining_an_ended_background_job_waits_for_the_store_like_the_first(
    broker: CheckedBroker, caller: Caller, other: Caller
) -> None:
    """I3, R24, R103. A bug: a caller that joined in between got an outcome that a crash would have undone."""
    broker.worker()
    job = broker.store(caller=caller, key="k")
    broker.succeed(attempt_of(job), b"result", 1.0)
    broker.take()
    broker.call(caller=other, durable=True, key="k", now=1.5)
    assert broker.take() == []
    broker.save_all(2.0)
    assert broker.take() == [
        DeliverOutcome(caller, job, Outcome.DONE, b"result"),
        DeliverOutcome(other, job, Outcome.DONE, b"result"),
    ]


def test_all_who_joined_hear_that_the_store_failed(broker: CheckedBroker, caller: Caller, other: Caller) -> None:
    """R24, R101, I4."""
    job = broker.call(caller=caller, durable=True, key="k")
    broker.call(caller=other, durable=True, key="k")
    broker.take()
    broker.store_reports.saved(1, 1.0, problem="disk full")
    assert broker.take() == [
        DeliverOutcome(
            each, job, Outcome.REFUSED, reason="store unavailable: disk full", refusal=RefusalReason.STORE_UNAVAILABLE
        )
        for each in (caller, other)
    ]
    assert broker.jobs == {}
    assert broker.call(b"other payload", durable=True, key="k", now=2.0) is not job
