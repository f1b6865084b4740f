"""Numbers of workers and of the flow of jobs from dialect to dialect."""

from __future__ import annotations

import pytest

from dragoman.core.model import Caller, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.recipients import Recipient
from owners import LOCAL_OWNER

from .world import CheckedBroker, attempt_of


class Side(Recipient):
    def __init__(self, dialect: str) -> None:
        self.dialect = dialect


def joined(broker: CheckedBroker, side: Recipient, service: str = "s", now: float = 0.0) -> Worker:
    worker = broker.join(side, None, "w", (service,), WorkerProfile(), now, LOCAL_OWNER)
    assert isinstance(worker, Worker)
    broker.idle(worker, now)
    return worker


def flow(broker: CheckedBroker) -> dict[tuple[str, str], tuple[int, float]]:
    return {pair: (cell.count, cell.broker_time) for pair, cell in broker.counters.flow.items()}


def test_flow_counts_each_pair_of_dialects_and_the_time_without_the_run(broker: CheckedBroker) -> None:
    http, native = Caller(Side("http"), LOCAL_OWNER), Caller(Side("native"), LOCAL_OWNER)
    workers = [joined(broker, side, "s") for side in (Side("memodb"), Side("memodb"), Side("pingpong"))]
    for number, caller in enumerate([http, native, http, http, native]):
        job = broker.submit("s", b"", caller, JobOptions(), number * 10.0)
        broker.take()
        broker.succeed(attempt_of(job), b"", number * 10.0 + 2.0)
        broker.take()
    assert flow(broker) == {
        ("http", "memodb"): (2, 0.0),
        ("native", "memodb"): (2, 0.0),
        ("http", "pingpong"): (1, 0.0),
    }
    assert workers[0].flow is workers[1].flow
    assert [worker.done for worker in workers] == [2, 2, 1]


def test_broker_time_is_the_time_in_the_queue_and_between_attempts(broker: CheckedBroker) -> None:
    caller = Caller(Side("http"), LOCAL_OWNER)
    job = broker.submit("s", b"", caller, JobOptions(waits=True, attempts=2), 1.0)
    worker = joined(broker, Side("native"), now=4.0)
    broker.take()
    broker.fail(attempt_of(job), "no", 6.0)
    broker.run_until(job.start_at)
    started = job.start_at
    broker.take()
    broker.succeed(attempt_of(job), b"", started + 7.0)
    assert flow(broker) == {("http", "native"): (1, pytest.approx(started - 1.0 - 2.0))}
    assert (worker.since, worker.done, worker.undone, worker.mean_run) == (4.0, 1, 1, 7.0)


def test_retry_of_a_background_job_keeps_the_dialect_of_its_caller(broker: CheckedBroker) -> None:
    joined(broker, Side("native"))
    job = broker.submit("s", b"", Caller(Side("http"), LOCAL_OWNER), JobOptions(durable=True, attempts=1), 0.0)
    broker.save_all()
    broker.take()
    broker.fail(attempt_of(job), "no", 1.0)
    again = broker.operator.retry(job, 1.0)
    broker.save_all()
    broker.take()
    broker.succeed(attempt_of(again), b"", 2.0)
    assert list(broker.counters.flow) == [("http", "native")]
    assert job.history is not None
    assert [(each.dialect, each.worker_id) for each in job.history] == [("native", 1)]


def test_mean_run_follows_the_latest_attempts(broker: CheckedBroker) -> None:
    worker = joined(broker, Side("native"))
    now = 0.0
    for seconds in [1.0, *[3.0] * 40]:
        job = broker.submit("s", b"", Caller(Side("http"), LOCAL_OWNER), JobOptions(), now)
        broker.take()
        broker.seen(worker, now)
        broker.succeed(attempt_of(job), b"", now + seconds)
        broker.take()
        if now == 0.0:
            assert worker.mean_run == 1.0
        now += seconds
    assert 2.9 < worker.mean_run < 3.0
