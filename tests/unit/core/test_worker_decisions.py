"""R181: a worker decides with its failure about retries."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.failure import Failure, pack_failure, read_retry, reported_failure, unpack_failure
from dragoman.core.states import JobState, Outcome

from .world import CheckedBroker, attempt_of

NEVER = Failure("ValueError", "no such page", "", inf)


def test_permanent_failure_ends_a_background_job_in_quarantine(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.store(attempts=5)
    broker.fail(attempt_of(job), "no such page", 1.0, NEVER)
    assert (job.state, job.outcome, job.quarantined, job.spent) == (JobState.ENDED, Outcome.FAILED, True, 1)
    assert job.failure is not None
    assert job.failure.is_permanent


def test_permanent_failure_ends_a_call(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.call(attempts=5)
    broker.fail(attempt_of(job), "no such page", 1.0, NEVER)
    assert (job.outcome, job.quarantined) == (Outcome.FAILED, False)


@pytest.mark.parametrize(("seconds", "start"), [(10.0, 11.0), (0.0, 1.0), (1e9, 1.0 + 30 * 86_400.0)])
def test_retry_comes_after_the_workers_delay(broker: CheckedBroker, seconds: float, start: float) -> None:
    broker.worker()
    job = broker.store(attempts=5)
    broker.fail(attempt_of(job), "later", 1.0, Failure("Retry", "later", "", seconds))
    if seconds:
        assert (job.state, job.start_at) == (JobState.DELAYED, start)
    else:
        assert job.state is JobState.RUNNING
    assert job.spent == 1


def test_attempts_limit_the_workers_decision(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.store(attempts=1)
    broker.fail(attempt_of(job), "later", 1.0, Failure("Retry", "later", "", 10.0))
    assert (job.outcome, job.quarantined) == (Outcome.FAILED, True)
    assert job.failure is not None
    assert not job.failure.is_permanent


@pytest.mark.parametrize("retry_in", [None, 0.0, 2.5, inf])
def test_decision_survives_its_bytes(retry_in: float | None) -> None:
    failure = Failure("\x01T", "message", "a\0b", retry_in)
    expected = reported_failure("\x01T", "message", "a\0b", retry_in)
    assert unpack_failure(pack_failure(failure)) == expected
    assert expected.type == "T"


@pytest.mark.parametrize(
    ("text", "seconds"), [("never", inf), ("10", 10.0), ("0", 0.0), ("2.500", 2.5), ("-1", None), ("inf", None)]
)
def test_decision_is_read(text: str, seconds: float | None) -> None:
    assert read_retry(text) == seconds


@pytest.mark.parametrize("text", ["", "nan", "Never", "soon"])
def test_other_texts_are_no_decision(text: str) -> None:
    assert read_retry(text) is None
