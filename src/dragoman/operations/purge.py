"""A purge: what waits for a service is cancelled, outcomes are forgotten; a few at a time, to hold up nobody."""

from __future__ import annotations

from collections import deque

from dragoman.core.broker import Broker
from dragoman.core.model import Job
from dragoman.core.states import DELAYED, ENDED, WAITING
from dragoman.operations.schemas import PurgeRequest, PurgeView

AT_ONCE = 1_000


class Purge:
    """What is chosen is chosen now. A job that has gone on by the time its turn comes is left alone."""

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
        """None: there is more to do."""
        for _ in range(min(AT_ONCE, len(self._chosen))):
            job, was_over = self._chosen.popleft()
            self._count += self._forget(job) if was_over else self._cancel(job, now)
        return PurgeView(name=self._name, purged=self._count) if not self._chosen else None

    def _cancel(self, job: Job, now: float) -> bool:
        is_there = job.state is WAITING or job.state is DELAYED
        return is_there and self._broker.withdraw(job, now, "purged on request")

    def _forget(self, job: Job) -> bool:
        if not job.is_archived:
            return False
        self._broker.job_registry.erase(job)
        return True
