"""What who watches is told, and how long things take."""

from __future__ import annotations

from dragoman.core.effects import News
from dragoman.core.histogram import BOUNDS, Histogram

from .world import Caller, CheckedBroker, attempt_of


def news(broker: CheckedBroker) -> list[str]:
    return [each.event for each in broker.take() if isinstance(each, News)]


def test_nobody_is_told_anything_until_somebody_watches(broker: CheckedBroker) -> None:
    broker.worker()
    broker.succeed(attempt_of(broker.call()), b"", 1.0)
    assert news(broker) == []


def test_life_of_a_job_and_of_its_worker(broker: CheckedBroker) -> None:
    broker.ledger.is_watched = True
    job = broker.call(attempts=2, delay=5.0)
    assert news(broker) == ["delayed"]
    broker.run_until(5.0)
    assert news(broker) == ["waiting"]
    worker = broker.worker(now=5.0)
    assert news(broker) == ["joined", "running"]
    broker.fail(attempt_of(job), "no", 6.0)
    assert news(broker) == ["delayed"]
    broker.run_until(job.start_at)
    assert news(broker) == ["waiting", "running"]
    broker.succeed(attempt_of(job), b"", 10.0)
    broker.leave(worker, 11.0, "gone")
    assert news(broker) == ["ended", "left"]


def test_end_of_a_background_job_is_news_when_the_diary_has_it(broker: CheckedBroker) -> None:
    """R103: after a crash it may end otherwise."""
    broker.worker()
    job = broker.store()
    broker.take()
    broker.ledger.is_watched = True
    broker.succeed(attempt_of(job), b"", 1.0)
    assert news(broker) == []
    broker.save_all(2.0)
    assert news(broker) == ["ended"]
    broker.ledger.attend(job, Caller())
    assert news(broker) == []


def test_waiting_and_running_are_timed_by_service(broker: CheckedBroker) -> None:
    job = broker.call(now=0.0)
    broker.worker(now=3.0)
    broker.succeed(attempt_of(job), b"", 3.25)
    service = job.service
    assert (service.waited.total, sum(service.waited.counts)) == (3.0, 1)
    assert (service.ran.total, sum(service.ran.counts)) == (0.25, 1)
    assert sum(service.ended.values()) == 1


def test_only_the_first_attempt_tells_how_long_jobs_wait(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.call(attempts=2)
    broker.fail(attempt_of(job), "no", 1.0)
    broker.run_until(job.start_at)
    assert sum(job.service.waited.counts) == 1
    assert sum(job.service.ran.counts) == 1


def test_bucket_holds_what_is_at_most_its_bound() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1], BOUNDS[-1] * 2):
        histogram.observe(seconds)
    assert (histogram.counts[0], histogram.counts[1], histogram.counts[-2], histogram.counts[-1]) == (2, 1, 1, 1)
