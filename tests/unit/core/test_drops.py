"""Jobs without an attempt are counted by service and cause, so that the server can log a warning."""

from __future__ import annotations

import pytest

from dragoman.core.counters import MOST_NAMED, QUEUE_TIMEOUT, UNNAMED, Counters
from dragoman.core.options import JobOptions
from dragoman.core.states import RefusalReason

from .world import Caller, CheckedBroker, attempt_of


def drops(broker: CheckedBroker) -> dict[str, dict[str, int]]:
    return {service: dropped.causes for service, dropped in broker.counters.dropped.items()}


def test_job_that_timed_out_in_the_queue_is_counted(broker: CheckedBroker) -> None:
    """A bug: 87,221 of 100,000 requests timed out in the queue, and there was no log line about it."""
    broker.call(queue_timeout=10.0)
    broker.call(deadline=5.0)
    broker.tick(10.0)
    assert drops(broker) == {"s": {QUEUE_TIMEOUT: 2}}
    assert broker.counters.dropped["s"].reason == "no worker was free within 10 s"


def test_job_that_no_worker_took_in_time_is_counted(broker: CheckedBroker) -> None:
    worker = broker.worker(may_decline=True)
    job = broker.call(queue_timeout=10.0)
    broker.take()
    broker.attempts.refuse(attempt_of(job), 11.0)
    assert drops(broker) == {"s": {QUEUE_TIMEOUT: 1}}
    assert worker.stuck


def test_job_that_waited_too_long_for_its_second_attempt_is_counted(broker: CheckedBroker) -> None:
    worker = broker.worker()
    job = broker.call(attempts=2, queue_timeout=10.0)
    broker.take()
    broker.fail(attempt_of(job), "no", 1.0)
    broker.leave(worker, 1.0, "gone")
    broker.tick(5.0)
    broker.tick(100.0)
    assert drops(broker) == {"s": {QUEUE_TIMEOUT: 1}}


@pytest.mark.parametrize("limit", [{"job_timeout": 5.0}, {"deadline": 5.0}])
def test_job_whose_run_time_is_over_is_not_a_drop(broker: CheckedBroker, limit: dict[str, float]) -> None:
    broker.worker()
    broker.call(queue_timeout=1.0, **limit)
    broker.take()
    broker.tick(5.0)
    assert broker.counters.ended["timed out"] == 1  # type: ignore[index]
    assert drops(broker) == {}


def test_good_job_costs_no_entry(broker: CheckedBroker) -> None:
    broker.worker()
    broker.succeed(attempt_of(broker.call()), b"", 1.0)
    assert drops(broker) == {}


def test_refused_submits_are_counted_by_cause() -> None:
    broker = CheckedBroker(max_jobs=1)
    broker.worker("s")
    broker.call()
    for service in ("s", "s", "made up 1", "made up 2"):
        assert broker.submit(service, b"x", Caller(), JobOptions(), 0.0) is None
    assert drops(broker) == {"s": {RefusalReason.BUSY: 2}, UNNAMED: {RefusalReason.NO_SUCH_SERVICE: 2}}
    assert broker.counters.dropped["s"].reason == "the broker holds 1 jobs, the maximum (max_jobs); retry later"
    assert broker.counters.refused == 4


def test_broker_that_stops_drops_nothing(broker: CheckedBroker) -> None:
    broker.call()
    broker.operator.close(0.0)
    assert broker.submit("s", b"x", Caller(), JobOptions(waits=True), 0.0) is None
    assert drops(broker) == {}


def test_number_of_names_is_bounded() -> None:
    counters = Counters()
    for number in range(MOST_NAMED + 10):
        counters.drop(f"s{number}", QUEUE_TIMEOUT, "late")
    assert len(counters.dropped) == MOST_NAMED + 1
    assert counters.dropped[UNNAMED].causes == {QUEUE_TIMEOUT: 10}
