"""Limits of a service: most running jobs, and who sets them (R182, R183)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dragoman.core.events import SERVICE_LIMITS_DIFFER, PublishEvent, ServiceEvent
from dragoman.core.limit_values import NO_RATE, LimitValues, Rate, read_rate
from dragoman.core.model import Job
from dragoman.core.options import JobOptions
from dragoman.core.restore import StoredJob, restore
from dragoman.core.service_limits import ServiceLimits
from dragoman.core.states import Outcome

from .world import NOBODY, CheckedBroker, attempt_of, caller_of, principal_of


def states(*jobs: Job) -> str:
    return " ".join(job.state.value for job in jobs)


def running(broker: CheckedBroker, service: str = "s") -> int:
    number: int = broker.worker_registry.services[service].running
    return number


def limits_of(broker: CheckedBroker, service: str = "s") -> ServiceLimits:
    limits: ServiceLimits | None = broker.worker_registry.services[service].limits
    assert limits is not None
    return limits


# ---------------------------------------------------------------- most running jobs


def test_jobs_over_max_running_wait_and_the_next_is_dispatched_at_once(broker: CheckedBroker) -> None:
    """R182."""
    broker.worker(capacity=9)
    broker.limit(max_running=2)
    jobs = [broker.call() for _ in range(4)]
    assert states(*jobs) == "running running waiting waiting"
    broker.take()
    broker.succeed(attempt_of(jobs[0]), b"", 1.0)
    assert states(*jobs) == "ended running running waiting"


def test_every_end_of_an_attempt_lets_the_next_job_start(broker: CheckedBroker) -> None:
    """R182: the next worker is another one, so that the end of the attempt alone does not bring the job forward."""
    ends = {
        "succeed": lambda job: broker.succeed(attempt_of(job), b"", 1.0),
        "fail": lambda job: broker.fail(attempt_of(job), "no", 1.0),
        "withdraw": lambda job: broker.withdraw(job, 1.0),
        "time out": lambda job: broker.tick(5.0),
        "leave": lambda job: broker.leave(attempt_of(job).worker, 1.0, "gone"),
        "give back later": lambda job: broker.attempts.give_back(attempt_of(job), 1.0, delay=60.0),
        "spend": lambda job: broker.attempts.give_back(attempt_of(job), 1.0, delay=60.0, spends=True),
        "reject": lambda job: broker.attempts.reject(attempt_of(job), "no", 1.0),
    }
    for name, end in ends.items():
        broker.worker(name)
        broker.worker(name)
        broker.limit(name, max_running=1)
        first = broker.call(service=name, job_timeout=5.0, attempts=2)
        second = broker.call(service=name, job_timeout=500.0)
        broker.take()
        assert states(first, second) == "running waiting", name
        end(first)
        assert second.state.value == "running", name


def test_worker_of_several_services_leaves_the_start_to_another(broker: CheckedBroker) -> None:
    """R182: the worker that ends the job takes an older one of its other service."""
    busy = broker.worker("a", "b", name="busy")
    broker.limit("a", max_running=1)
    first = broker.call(service="a")
    older = broker.call(service="b", now=1.0)
    later = broker.call(service="a", now=2.0)
    broker.take()
    broker.worker("a", name="free", now=3.0)
    broker.succeed(attempt_of(first), b"", 4.0)
    assert states(older, later) == "running running"
    assert attempt_of(older).worker is busy


def test_limited_service_does_not_hold_up_a_worker_of_several(broker: CheckedBroker) -> None:
    worker = broker.worker("a", "b", capacity=2)
    broker.limit("a", max_running=1)
    first, second = (broker.call(service="a") for _ in range(2))
    other = broker.call(service="b", now=9.0)
    assert states(first, second, other) == "running waiting running"
    assert len(worker.running) == 2


def test_new_limit_applies_at_once_and_ends_no_job(broker: CheckedBroker) -> None:
    """R182: it counts the jobs that run already."""
    broker.worker(capacity=9)
    jobs = [broker.call() for _ in range(3)]
    broker.limit(max_running=2)
    jobs += [broker.call() for _ in range(3)]
    assert states(*jobs) == "running running running waiting waiting waiting"
    broker.succeed(attempt_of(jobs[0]), b"", 1.0)
    assert running(broker) == 2
    broker.limit(max_running=4)
    assert states(*jobs[1:]) == "running running running running waiting"
    broker.limit()
    assert running(broker) == 5


def test_jobs_of_an_earlier_run_count_when_they_run(broker: CheckedBroker) -> None:
    """R107, R182: a job that was running when the broker died may still run."""
    broker.limit(max_running=1)
    stored = StoredJob(1, b"j" * 16, "s", JobOptions(durable=True, waits=True), 0.0)  # type: ignore[arg-type]
    stored.token, stored.attempt, stored.can_resume = b"t" * 16, 1, True  # type: ignore[assignment]
    restore(broker.plain, stored, 0.0, NOBODY)
    broker.worker()
    job = broker.call()
    assert states(job) == "waiting"
    broker.run_until(31.0)  # worker_resume_timeout
    assert states(job) == "running"


def test_nothing_starts_before_all_jobs_of_the_earlier_run_are_known(broker: CheckedBroker) -> None:
    """R182: some of them run, and are not counted yet. Services without limits start at once, and so does a rate."""
    broker.job_registry.is_loading = True
    broker.limit("limited", max_running=1)
    broker.limit("tenants", max_running_per_tenant=1)
    broker.limit("rate", rate="1/s")
    jobs = []
    for name in ("limited", "tenants", "rate", "free"):
        broker.worker(name)
        jobs.append(broker.call(service=name))
    assert states(*jobs) == "waiting waiting running running"
    broker.plain.job_registry.is_loading = False
    broker.limiter.loaded(1.0)
    assert states(*jobs) == "running running running running"


def test_detached_and_draining_workers_hold_running_jobs(broker: CheckedBroker) -> None:
    broker.limit(max_running=2)
    detached, draining = broker.worker(), broker.worker()
    jobs = [broker.call() for _ in range(3)]
    broker.take()
    broker.availability.detach(detached, 1.0)
    broker.availability.drain(draining, 1.0)
    broker.worker(now=1.0)
    assert states(*jobs) == "running running waiting"
    broker.succeed(attempt_of(jobs[1]), b"", 2.0)
    assert states(*jobs) == "running ended running"


def test_paused_service_with_a_limit(broker: CheckedBroker) -> None:
    broker.worker(capacity=9)
    broker.limit(max_running=1)
    broker.operator.pause("s")
    jobs = [broker.call() for _ in range(2)]
    broker.limit(max_running=2)
    assert running(broker) == 0
    broker.limit(max_running=1)
    broker.operator.resume("s", 1.0)
    assert states(*jobs) == "running waiting"


def test_principal_and_service_may_both_be_at_their_limit(broker: CheckedBroker) -> None:
    """R166, R182: the job starts when both allow it, in either order."""
    web = principal_of(broker, "web", max_running=1)
    broker.worker("s", capacity=9)
    broker.worker("other", capacity=9)
    broker.limit("s", max_running=1)
    for first_free in ("principal", "service"):
        taken = broker.call(service="s")
        own = broker.call(service="other", caller=caller_of(web))
        job = broker.call(service="s", caller=caller_of(web))
        for end in (own, taken) if first_free == "principal" else (taken, own):
            assert states(job) == "waiting"
            broker.succeed(attempt_of(end), b"", 1.0)
        assert states(job) == "running"
        broker.succeed(attempt_of(job), b"", 1.0)


def test_job_that_returns_gives_its_place_to_itself(broker: CheckedBroker) -> None:
    """R8: it has the lowest key, so it starts again before later ones."""
    first_worker, _ = broker.worker(), broker.worker()
    broker.limit(max_running=1)
    first, second = broker.call(now=0.0), broker.call(now=1.0)
    broker.leave(first_worker, 2.0, "gone", unseen=[attempt_of(first)])
    assert states(first, second) == "running waiting"


def test_queue_timeout_of_a_limited_service_names_the_limit(broker: CheckedBroker) -> None:
    broker.worker(capacity=2)
    broker.limit(max_running=1)
    broker.call()
    job = broker.call(queue_timeout=3.0)
    broker.take()
    broker.tick(3.0)
    (answer,) = broker.take()
    assert job.outcome is Outcome.TIMED_OUT
    assert answer.reason == (  # type: ignore[attr-defined]
        "no worker was free within 3 s, or a limit was reached: 's' runs 1 job, the maximum (max_running, set by an "
        "operator)"
    )


def test_limited_name_is_not_forgotten() -> None:
    """R29: a limit of an operator is kept, like a pause, when names become scarce."""
    broker = CheckedBroker(max_services=5)
    broker.limit("limited", max_running=1)
    for number in range(10):
        worker = broker.worker(f"t{number}")
        broker.leave(worker, 0.0, "gone")
    assert limits_of(broker, "limited").max_running == 1
    broker.limit("limited")
    for number in range(10):
        worker = broker.worker(f"t{number}")
        broker.leave(worker, 0.0, "gone")
    assert "limited" not in broker.worker_registry.services


# ---------------------------------------------------------------- authors


def declare(broker: CheckedBroker, name: str = "w", service: str = "s", **values: object) -> object:
    worker = broker.starting(service, name=name, capacity=9)
    broker.limiter.declare(worker, {service: LimitValues(**values)}, 0.0)  # type: ignore[arg-type]
    broker.idle(worker, 0.0)
    return worker


def test_lowest_declaration_of_the_workers_that_are_connected_holds(broker: CheckedBroker) -> None:
    """R183: that of a worker which has left does not count any more."""
    low = declare(broker, "low", max_running=1, rate=Rate(1, "h"))
    declare(broker, "high", max_running=3)
    declare(broker, "silent")
    jobs = [broker.call(now=1.0) for _ in range(9)]
    setting = limits_of(broker).setting
    assert str(setting) == "max_running 1, rate 1/h"
    assert (setting.max_running_by, setting.rate_by) == ("declared by its workers", "declared by its workers")
    assert running(broker) == 1
    broker.leave(low, 2.0, "gone")
    assert str(limits_of(broker).setting) == "max_running 3"
    assert running(broker) == 3 - (attempt_of(jobs[0]).worker is low if jobs[0].attempt else 0)


def test_limit_of_an_operator_beats_each_declaration_by_itself(broker: CheckedBroker) -> None:
    """R183: a limit that the operator has not set is that of the workers. `no limit` is a value, too."""
    declare(broker, max_running=2, max_running_per_tenant=1, rate=Rate(5, "s"))
    values = {
        "one of them": (LimitValues(max_running=9), "max_running 9, max_running_per_tenant 1, rate 5/s"),
        "no limit": (LimitValues(0, 0, NO_RATE), "no limits"),
        "a higher one": (
            LimitValues(rate=Rate(600, "s")),
            "max_running 2, max_running_per_tenant 1, rate 600/s",
        ),
        "nothing": (LimitValues(), "max_running 2, max_running_per_tenant 1, rate 5/s"),
    }
    for name, (by_operator, expected) in values.items():
        broker.limiter.set_by_operator("s", by_operator, "ada", 0.0)
        assert str(limits_of(broker).setting) == expected, name
    broker.limiter.set_by_operator("s", LimitValues(max_running=9), "ada", 0.0)
    assert limits_of(broker).setting.max_running_by == "set by ada"


def test_workers_that_differ_cause_one_warning(broker: CheckedBroker) -> None:
    """R183: again only after they have agreed, and not about a limit that an operator has set."""
    broker.events.subscribe(SERVICE_LIMITS_DIFFER, lambda event, now: None)

    def warnings() -> list[object]:
        return [each.event for each in broker.take() if isinstance(each, PublishEvent)]

    declare(broker, max_running=2)
    same = declare(broker, max_running=2)
    assert warnings() == []
    other = declare(broker, max_running=4)
    declare(broker, max_running=5)
    assert warnings() == [ServiceEvent(SERVICE_LIMITS_DIFFER, "s", limits="max_running 2")]
    broker.limit(max_running=9)
    broker.leave(same, 0.0, "gone")
    declare(broker, max_running=3)
    assert warnings() == []
    broker.limit()
    assert len(warnings()) == 1
    broker.leave(other, 0.0, "gone")
    assert warnings() == []


def test_worker_that_drops_a_service_withdraws_its_declaration(broker: CheckedBroker) -> None:
    """R132, R183."""
    worker = broker.starting("s", "t")
    broker.limiter.declare(worker, {"s": LimitValues(max_running=1), "t": LimitValues(max_running=2)}, 0.0)
    broker.availability.offer(worker, ["t"], 0.0)
    assert (str(limits_of(broker).setting), str(limits_of(broker, "t").setting)) == ("no limits", "max_running 2")
    broker.availability.drain(worker, 1.0, at_once=True)
    assert str(limits_of(broker, "t").setting) == "no limits"


def test_declaration_for_a_service_that_the_worker_does_not_offer_is_ignored(broker: CheckedBroker) -> None:
    worker = broker.starting("s")
    broker.limiter.declare(worker, {"t": LimitValues(max_running=1)}, 0.0)
    assert broker.worker_registry.services["s"].limits is None


@pytest.mark.parametrize(
    ("text", "interval"), [("100/min", 0.6), ("5/s", 0.2), ("1000/h", 3.6), ("1000000/s", 1e-6), ("none", 0.0)]
)
def test_rates(text: str, interval: float) -> None:
    rate = read_rate(text)
    assert (rate.interval, str(rate)) == (pytest.approx(interval), text)


@pytest.mark.parametrize(
    "text", ["", "100", "/s", "0/s", "-1/s", "1.5/s", "1/d", "1 /s", "1/s ", "1000001/s", "9" * 5000 + "/s", "٣/s"]
)
def test_texts_that_are_no_rates(text: str) -> None:
    with pytest.raises(ValueError, match="write a number from 1 to 1000000 and a unit, s, min or h, such as 100/min"):
        read_rate(text)


def test_values_are_immutable_and_comparable() -> None:
    assert replace(LimitValues(max_running=3), max_running=None) == LimitValues()
    assert LimitValues().is_empty
    assert not LimitValues(max_running=0).is_empty
