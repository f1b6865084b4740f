"""The next job of a worker of several services (R14).

It is the oldest of the first jobs of their queues. If several principals wait there, they take turns: by age alone,
many jobs of one principal for one of the services would delay all later jobs of others for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from dragoman.core.model import Job, Service


@final
class Turns:
    """Chooses among the first jobs of queues, and numbers the turns of principals."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next_job(self, services: Sequence[Service]) -> Job | None:
        """Return the job to dispatch next, or None if none may be dispatched."""
        best: Job | None = None
        is_shared = False
        for service in services:
            if not service.queue.length or service.closed:
                continue
            head = service.queue.head()
            if head is None:
                continue
            is_shared = is_shared or service.queue.is_shared
            if best is None:
                best = head
                continue
            is_shared = is_shared or head.owner.principal is not best.owner.principal
            if head.order < best.order:
                best = head
        return self._take_turn(services) if is_shared else best

    def _take_turn(self, services: Sequence[Service]) -> Job | None:
        best: Job | None = None
        for service in services:
            head = service.queue.head() if service.queue.length and not service.closed else None
            if head is not None and (best is None or _place(head) < _place(best)):
                best = head
        if best is not None:
            self._last += 1
            best.owner.principal.last_turn = self._last
            best.service.queue.last_turn = self._last
        return best


def _place(job: Job) -> tuple[int, bool, int, float]:
    """Return the place of a first job in the order of turns: the principal whose last turn is longest ago is first. Of
    its jobs, one is first in whose queue another principal waits, then one of the queue that was passed over longest.
    """
    queue = job.service.queue
    return job.owner.principal.last_turn, not queue.is_shared, queue.last_turn, job.order
