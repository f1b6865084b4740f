"""Samples of the jobs of a service: callers by dialect, and reasons of jobs that were not done."""

from __future__ import annotations

from dragoman.core.conversations import PER_SECOND
from dragoman.core.ids import JobId
from dragoman.core.job_sample import KEPT, MOST_COUNTED, MOST_REASONS, JobSample
from dragoman.core.states import Outcome

from .world import CheckedBroker, attempt_of

FIRST, LAST = JobId(bytes(16)), JobId(bytes([1]) * 16)


def test_equal_causes_are_counted_together_with_the_latest_job() -> None:
    sample = JobSample()
    sample.add_reason(FIRST, Outcome.FAILED, "page 7 of 'a.pdf' is empty", 1.0)
    sample.add_reason(LAST, Outcome.FAILED, "page 12 of 'b.pdf' is empty", 2.0)
    sample.add_reason(FIRST, Outcome.LOST, "connection ended", 3.0)
    found = [(each.outcome, each.reason, each.count, each.last, each.job) for each in sample.reasons(3.0)]
    assert found == [
        (Outcome.FAILED, "page … of … is empty", 2, 2.0, LAST),
        (Outcome.LOST, "connection ended", 1, 3.0, FIRST),
    ]


def test_reasons_are_bounded_and_forgotten_after_an_hour() -> None:
    sample = JobSample()
    for number in range(MOST_REASONS + 1):
        sample.add_reason(FIRST, Outcome.FAILED, "x" * (number + 1), float(number))
    reasons = [each.reason for each in sample.reasons(MOST_REASONS)]
    assert len(reasons) == MOST_REASONS
    assert "x" not in reasons, "the oldest one is dropped"
    assert len(sample.reasons(KEPT + MOST_REASONS)) == 0


def test_the_latest_callers_weigh_most() -> None:
    sample = JobSample()
    sample.add_caller("powerhose")
    for dialect in ("native", "http"):
        for _ in range(MOST_COUNTED):
            sample.add_caller(dialect)
    assert "powerhose" not in sample.callers
    assert sample.callers["http"] > 2 * sample.callers["native"]
    assert sum(sample.callers.values()) < MOST_COUNTED


def test_only_recorded_jobs_are_sampled(broker: CheckedBroker) -> None:
    broker.worker()
    silent = broker.call(attempts=1)
    broker.fail(attempt_of(silent), "no", 1.0)
    service = silent.service
    assert service.sample is None, "this broker records nothing"
    broker.job_registry.conversations.start()
    for _ in range(2 * PER_SECOND + 10):
        broker.fail(attempt_of(broker.call(attempts=1)), "no", 2.0)
    assert service.sample is not None
    (reason,) = service.sample.reasons(2.0)
    assert PER_SECOND <= reason.count <= PER_SECOND + 1
    assert PER_SECOND <= sum(service.sample.callers.values()) <= PER_SECOND + 1
