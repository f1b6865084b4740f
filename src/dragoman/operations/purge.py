"""A purge of a service: cancels its jobs or deletes their outcomes, in batches, so that the broker is not blocked."""

from __future__ import annotations

from collections import deque

from dragoman.core.broker import Broker
from dragoman.core.model import Job
from dragoman.core.states import ENDED, RUNNING
from dragoman.operations.schemas import PurgeRequest, PurgeView

BATCH = 1_000  # jobs


class Purge:
    """Purges the jobs that match now. A job whose state has changed when its batch runs is left unchanged."""

    __slots__ = ("_broker", "_count", "_jobs", "_name", "_reason")

    def __init__(self, broker: Broker, request: PurgeRequest, reason: str) -> None:
        """`reason`: that of the outcome of cancelled jobs."""
        self._broker = broker
        self._reason = reason
        self._name = request.name
        self._count = 0
        self._jobs: deque[tuple[Job, bool]] = deque(
            (job, job.state is ENDED)
            for job in broker.jobs.values()
            if job.service.name == request.name and job.state.value in request.states
        )

    def step(self, now: float) -> PurgeView | None:
        """Purge the next batch. Returns None if jobs are left."""
        for _ in range(min(BATCH, len(self._jobs))):
            job, had_ended = self._jobs.popleft()
            self._count += self._delete(job) if had_ended else self._cancel(job, now)
        return PurgeView(name=self._name, purged=self._count) if not self._jobs else None

    def _cancel(self, job: Job, now: float) -> bool:
        is_open = job.state is not RUNNING and job.state is not ENDED
        return is_open and self._broker.withdraw(job, now, self._reason)

    def _delete(self, job: Job) -> bool:
        if not job.is_archived or self._broker.job_registry.kept.archive.is_pinned(job):
            return False
        self._broker.job_registry.kept.erase(job)
        return True
