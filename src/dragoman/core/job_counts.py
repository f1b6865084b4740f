"""Exact numbers of jobs by state, of one service or of all. Reading them takes the same time for any number of jobs."""

from __future__ import annotations

from dragoman.core.broker import Broker


class JobCounts:
    """Jobs that have not ended, and ended jobs whose outcome is kept: calls without a key are not among the latter."""

    __slots__ = ("delayed", "dependent", "done", "quarantined", "running", "undone", "waiting")

    def __init__(
        self, waiting: int, delayed: int, dependent: int, running: int, done: int, undone: int, quarantined: int
    ) -> None:
        self.waiting = waiting
        self.delayed = delayed
        self.dependent = dependent
        self.running = running
        self.done = done
        self.undone = undone  # ended otherwise than `done`, in quarantine or not
        self.quarantined = quarantined

    def numbers(self) -> tuple[int, int, int, int, int, int, int]:
        """Return all numbers, in the order of the constructor."""
        return (
            self.waiting,
            self.delayed,
            self.dependent,
            self.running,
            self.done,
            self.undone,
            self.quarantined,
        )


def count_all(broker: Broker) -> JobCounts:
    """Return the numbers of all services together."""
    totals, kept = broker.worker_registry.names.totals, broker.job_registry.kept.counts.total
    running = broker.job_registry.present - totals.waiting - totals.delayed - totals.dependent
    return JobCounts(
        totals.waiting, totals.delayed, totals.dependent, running, kept.done, kept.undone, kept.quarantined
    )


def count_of(broker: Broker, name: str) -> JobCounts:
    """Return the numbers of the service of this name; zeros if there is no such service."""
    kept = broker.job_registry.kept.counts.of(name)
    service = broker.worker_registry.services.get(name)
    if service is None:
        return JobCounts(0, 0, 0, 0, kept.done, kept.undone, kept.quarantined)
    return JobCounts(
        service.queue.length,
        service.delayed,
        service.dependent,
        service.running,
        kept.done,
        kept.undone,
        kept.quarantined,
    )
