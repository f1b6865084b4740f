"""A purge: cancels waiting jobs of a service or deletes outcomes, a batch at a time so that other requests go on."""

from __future__ import annotations

from collections import deque

from dragoman.core.broker import Broker
from dragoman.core.model import Job
from dragoman.core.states import DELAYED, ENDED, WAITING
from dragoman.operations.schemas import PurgeRequest, PurgeView

AT_ONCE = 1_000  # jobs in one iteration


class Purge:
    """A purge in progress. Its jobs are chosen at the start; one that has changed its state since is left out."""

    __slots__ = ("_broker", "_chosen", "_count", "_name")

    def __init__(self, broker: Broker, form: PurgeRequest) -> None:
        self._broker = broker
        self._name = form.name
        self._count = 0
        self._chosen: deque[tuple[Job, bool]] = deque(
            (job, job.state is ENDED)
            for job in broker.jobs.values()
            if job.service.name == form.name and job.state.value in form.states
        )

    def go_on(self, now: float) -> PurgeView | None:
        """Purge the next batch. Returns the view at the end, None if there is more to do."""
        for _ in range(min(AT_ONCE, len(self._chosen))):
            job, was_ended = self._chosen.popleft()
            self._count += self._forget(job) if was_ended else self._cancel(job, now)
        return PurgeView(name=self._name, purged=self._count) if not self._chosen else None

    def _cancel(self, job: Job, now: float) -> bool:
        is_there = job.state is WAITING or job.state is DELAYED
        return is_there and self._broker.withdraw(job, now, "purged on request")

    def _forget(self, job: Job) -> bool:
        if not job.is_archived:
            return False
        self._broker.job_registry.erase(job)
        return True
