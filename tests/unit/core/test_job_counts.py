"""Exact numbers of jobs by state. The checked broker compares them with the jobs after every call (I1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from case_tables import check_every_row
from dragoman.core.errors import InvariantBroken
from dragoman.core.invariants import check
from dragoman.core.job_counts import count_all, count_of
from dragoman.core.job_extras import JobExtras
from dragoman.core.options import JobOptions

from .world import Caller, CheckedBroker, attempt_of


def numbers(broker: CheckedBroker, service: str = "") -> tuple[int, ...]:
    return (count_of(broker.plain, service) if service else count_all(broker.plain)).numbers()


def test_every_state_is_counted_by_service_and_in_total() -> None:
    broker = CheckedBroker(outcome_retention=60.0)
    broker.store(service="a")
    first = broker.store(service="b", delay=9.0)
    extras = JobExtras(after=(first.id,))
    broker.submit("d", b"", Caller(), JobOptions(durable=True, waits=True), 0.0, extras=extras)
    for number in range(3):
        worker = broker.worker("c", name=f"w{number}")
        job = broker.store(service="c", attempts=1)
        broker.take()
        if number == 0:
            broker.succeed(attempt_of(job), b"", 0.0)
        elif number == 1:
            broker.fail(attempt_of(job), "no", 0.0)
        broker.save_all()
        if number < 2:
            broker.leave(worker, 0.0, "gone")
    assert numbers(broker) == (1, 1, 1, 1, 1, 1, 1)
    assert (numbers(broker, "a"), numbers(broker, "b")) == ((1, 0, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0, 0))
    assert (numbers(broker, "c"), numbers(broker, "d")) == ((0, 0, 0, 1, 1, 1, 1), (0, 0, 1, 0, 0, 0, 0))
    assert numbers(broker, "unknown") == (0,) * 7
    broker.withdraw(attempt_of(job).job, 1.0)
    broker.save_all()
    assert numbers(broker, "c") == (0, 0, 0, 0, 1, 2, 1)
    broker.run_until(100.0)
    assert numbers(broker, "c") == (0,) * 7
    assert list(broker.job_registry.kept.counts.by_service) == []


def test_call_that_is_not_kept_is_counted_until_it_ends(broker: CheckedBroker) -> None:
    broker.running()
    waiting = broker.call()
    assert numbers(broker) == (1, 0, 0, 1, 0, 0, 0)
    broker.withdraw(waiting, 1.0)
    assert numbers(broker) == (0, 0, 0, 1, 0, 0, 0)


def test_kept_outcomes_of_a_service_that_was_forgotten_are_still_counted() -> None:
    broker = CheckedBroker(max_services=5)
    worker = broker.worker("a")
    job = broker.store(service="a")
    broker.succeed(attempt_of(job), b"", 0.0)
    broker.save_all()
    broker.leave(worker, 0.0, "gone")
    for name in "bcde":
        broker.call(service=name)
    assert "a" not in broker.worker_registry.services
    assert numbers(broker, "a") == (0, 0, 0, 0, 1, 0, 0)


def test_wrong_count_breaks_the_invariant() -> None:
    def row(spoil: Callable[[CheckedBroker], None], message: str) -> None:
        broker = CheckedBroker()
        worker = broker.worker()
        job = broker.store(attempts=1)
        broker.fail(attempt_of(job), "no", 0.0)
        broker.save_all()
        broker.leave(worker, 0.0, "gone")
        broker.call()
        check(broker.plain)
        spoil(broker)
        with pytest.raises(InvariantBroken, match=message):
            check(broker.plain)

    def waiting(broker: CheckedBroker) -> None:
        broker.worker_registry.names.totals.waiting += 1

    def delayed(broker: CheckedBroker) -> None:
        broker.worker_registry.services["s"].delayed += 1

    def dependent(broker: CheckedBroker) -> None:
        broker.worker_registry.services["s"].dependent += 1

    def undone(broker: CheckedBroker) -> None:
        broker.job_registry.kept.counts.by_service["s"].undone += 1

    def total(broker: CheckedBroker) -> None:
        broker.job_registry.kept.counts.total.quarantined += 1

    def group(broker: CheckedBroker) -> None:
        next(broker.job_registry.kept.quarantine.parts()).jobs.clear()

    def ungrouped(broker: CheckedBroker) -> None:
        broker.job_registry.kept.quarantine.ungrouped += 1

    check_every_row(
        row,
        [
            (waiting, "I1: 1 jobs wait, 0 are delayed and 0 dependent, 2, 0 and 0 are counted"),
            (delayed, "I1: service s: 0 jobs are delayed, 1 are counted"),
            (dependent, "I1: service s: 0 jobs are dependent, 1 are counted"),
            (undone, "I1: kept outcomes"),
            (total, "I1: the counts of all kept outcomes"),
            (group, "I5: group [0-9a-f]{16} of the quarantine has no jobs"),
            (ungrouped, "I22: 1 jobs are in quarantine, 2 are counted"),
        ],
    )
