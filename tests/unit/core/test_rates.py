"""The rate of a service: a token bucket on the clock of the core (R184)."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.limit_values import LimitValues, Rate
from dragoman.core.model import Job
from dragoman.core.service_limits import SMOOTHING

from .world import CheckedBroker, attempt_of


def started(jobs: list[Job]) -> int:
    return sum(job.attempt is not None for job in jobs)


def starts(broker: CheckedBroker, jobs: list[Job], until: float, now: float = 0.0) -> list[float]:
    """Times at which jobs start, with a runner that is never late."""
    times = [now] * started(jobs)
    while (due := broker.next_deadline()) <= until:
        broker.tick(due)
        times += [due] * (started(jobs) - len(times))
    return times


def flood(broker: CheckedBroker, rate: str, count: int = 50, now: float = 0.0) -> list[Job]:
    broker.worker(capacity=count, now=now)
    broker.limit(rate=rate, now=now)
    return [broker.call(now=now, job_timeout=inf) for _ in range(count)]


def test_starts_are_spread_evenly(broker: CheckedBroker) -> None:
    times = starts(broker, flood(broker, "100/min"), 6.0)
    assert times == pytest.approx([0.0, *(0.5 + 0.6 * number for number in range(10))])


@pytest.mark.parametrize("rate", ["100/min", "5/s", "7/s", "30/s", "1000/s", "3600/h"])
@pytest.mark.parametrize("late", [0.0, 0.013, 0.25])
def test_no_window_has_more_starts_than_the_bucket_allows(broker: CheckedBroker, rate: str, late: float) -> None:
    """R184, also if the broker wakes up late; the mean is the rate as long as it is not later than the bucket holds."""
    count, now = 100, 0.0
    jobs = flood(broker, rate, count)
    times = [0.0] * started(jobs)
    while len(times) < count:
        now = max(now, broker.next_deadline()) + late
        broker.tick(now)
        times += [now] * (started(jobs) - len(times))
    limits = broker.worker_registry.services["s"].limits
    assert limits is not None
    for first in range(0, count, 3):
        for last in range(first, count, 5):
            most = (times[last] - times[first] + SMOOTHING) / limits.interval + 1
            assert last - first + 1 <= most + 1e-6
    if late < SMOOTHING:
        assert times[-1] <= (count - 1) * limits.interval + late


def test_quiet_time_and_a_jump_of_the_clock_allow_no_burst(broker: CheckedBroker) -> None:
    """R22, R184: an hour that passes in one step."""
    broker.worker(capacity=99)
    broker.limit(rate="5/s")
    broker.tick(3_600.0)
    broker.extend_leases(3_600.0, 3_600.0)
    assert started([broker.call(now=3_600.0) for _ in range(20)]) == 1


def test_fast_rate_may_start_those_of_a_tenth_of_a_second_at_once(broker: CheckedBroker) -> None:
    """R184: else a broker that wakes up once in a millisecond could not keep up."""
    assert started(flood(broker, "1000/s", 300)) in (100, 101)


def test_bucket_is_empty_after_a_restart(broker: CheckedBroker) -> None:
    """R184: its last run may have started one a moment ago."""
    broker.plain.limiter.began = 0.0
    times = starts(broker, flood(broker, "1/min", now=10.0), 130.0, now=10.0)
    assert times == pytest.approx([60.0, 120.0])


def test_worker_that_comes_back_finds_the_bucket_as_it_was(broker: CheckedBroker) -> None:
    """R183, R184: a worker that crashes and joins again cannot start more."""
    begun = 0
    for second in range(30):
        worker = broker.starting(now=float(second))
        broker.limiter.declare(worker, {"s": LimitValues(rate=Rate(6, "min"))}, float(second))
        broker.idle(worker, float(second))
        job = broker.call(now=float(second))
        broker.tick(float(second))
        begun += bool(worker.running)
        broker.leave(worker, second + 0.5, "gone", unseen=list(worker.running.values()))
        broker.withdraw(job, second + 0.6)
    assert begun == 3


def test_new_rate_owes_at_most_one_interval(broker: CheckedBroker) -> None:
    """An operator who raises a rate does not wait for the old one."""
    jobs = flood(broker, "1/h")
    assert started(jobs) == 1
    broker.limit(rate="1/s", now=10.0)
    assert starts(broker, jobs, 11.0, now=10.0)[1:] == pytest.approx([11.0])
    broker.limit(rate="none", now=11.5)
    assert started(jobs) == 50


def test_rate_is_lowered_between_two_starts(broker: CheckedBroker) -> None:
    jobs = flood(broker, "1/s")
    broker.limit(rate="1/h", now=0.5)
    broker.run_until(3_000.0)
    assert started(jobs) == 2  # the one that was due at 0.9


def test_retries_take_a_token(broker: CheckedBroker) -> None:
    broker.worker()
    broker.limit(rate="1/min")
    job = broker.call(attempts=2)
    broker.take()
    broker.fail(attempt_of(job), "no", 1.0)
    broker.run_until(59.0)
    assert job.attempt is None
    broker.run_until(60.0)
    assert job.attempt is not None


def test_rate_and_most_running_jobs_hold_together(broker: CheckedBroker) -> None:
    broker.worker(capacity=9)
    broker.limit(rate="1/s", max_running=2)
    jobs = [broker.call(job_timeout=inf) for _ in range(4)]
    broker.run_until(10.0)
    assert started(jobs) == 2
    broker.succeed(attempt_of(jobs[0]), b"", 10.0)
    broker.succeed(attempt_of(jobs[1]), b"", 10.0)
    assert started(jobs) == 1
    broker.run_until(11.0)
    assert started(jobs) == 2


def test_paused_service_starts_none_when_its_bucket_fills(broker: CheckedBroker) -> None:
    jobs = flood(broker, "1/s")
    broker.operator.pause("s")
    broker.run_until(10.0)
    assert started(jobs) == 1
    broker.operator.resume("s", 10.0)
    assert started(jobs) == 2


def test_broker_that_drains_starts_none(broker: CheckedBroker) -> None:
    jobs = flood(broker, "1/s")
    broker.operator.close(0.5)
    broker.run_until(10.0)
    assert started(jobs) == 1


def test_rate_of_a_forgotten_service_leaves_no_timer() -> None:
    """I11: the name of a service with a timer is not forgotten."""
    broker = CheckedBroker(max_services=5)
    worker = broker.starting("declared")
    broker.limiter.declare(worker, {"declared": LimitValues(rate=Rate(1, "h"))}, 0.0)
    broker.idle(worker, 0.0)
    broker.withdraw(broker.call(service="declared"), 0.0)
    broker.leave(worker, 0.0, "gone")
    for number in range(10):
        broker.leave(broker.worker(f"t{number}"), 0.0, "gone")
    broker.run_until(4_000.0)
    for number in range(10):
        broker.leave(broker.worker(f"t{number}"), 4_000.0, "gone")
    assert "declared" not in broker.worker_registry.services
