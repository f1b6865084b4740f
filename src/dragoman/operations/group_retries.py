"""Retries of groups of quarantined jobs, at a limited rate. They are in memory: a restart ends them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.model import Job

BUSY_DELAY: Final = 1.0  # seconds until the next try if a limit is reached
MAX_BATCH: Final = 100  # jobs retried in one iteration: messages must not wait for all of them


class GroupRetry:
    """One retry: the jobs that are left, and when the next one is due."""

    __slots__ = ("_jobs", "_rate", "due", "group", "of", "owner", "retried", "service")

    def __init__(self, group: str, service: str, owner: str, jobs: Iterable[Job], rate: float, now: float) -> None:
        self.group = group
        self.service = service
        self.owner = owner  # name of the principal that requested it
        self.retried = 0
        self.due = now
        self._jobs = deque(jobs)
        self._rate = rate
        self.of = len(self._jobs)

    @property
    def is_over(self) -> bool:
        return not self._jobs

    def step(self, broker: Broker, now: float) -> None:
        """Retry the jobs that are due. The draining broker retries none: they stay in quarantine."""
        if broker.dispatch.is_draining:
            self._jobs.clear()
        for _ in range(MAX_BATCH):
            if not self._jobs or self.due > now:
                return
            job = self._jobs[0]
            if job.quarantined and broker.jobs.get(job.id) is job:  # else it was retried, released or erased meanwhile
                if broker.operator.retry(job, now) is None:
                    self.due = now + BUSY_DELAY
                    return
                self.retried += 1
                self.due += 1.0 / self._rate
            self._jobs.popleft()


class GroupRetries:
    """All retries of groups that have not ended."""

    __slots__ = ("_broker", "active", "when_over", "when_retried")

    def __init__(self, broker: Broker) -> None:
        self.active: list[GroupRetry] = []
        self.when_retried: Callable[[str, int, float], None] = lambda service, jobs, now: None  # called for each step
        self.when_over: Callable[[GroupRetry], None] = lambda retry: None  # called when one has ended
        self._broker = broker

    def find(self, group: str, owner: str) -> GroupRetry | None:
        """Return the retry of this group that the principal has requested and that has not ended."""
        return next((each for each in self.active if (each.group, each.owner) == (group, owner)), None)

    def start(self, retry: GroupRetry, now: float) -> None:
        self.active.append(retry)
        self.step(now)

    def step(self, now: float) -> float:
        """Retry the jobs that are due. Returns the time of the next step."""
        due = inf
        for retry in list(self.active):
            before = retry.retried
            retry.step(self._broker, now)
            if retry.retried > before:
                self.when_retried(retry.service, retry.retried - before, now)
            if retry.is_over:
                self.active.remove(retry)
                self.when_over(retry)
            else:
                due = min(due, retry.due)
        return due
