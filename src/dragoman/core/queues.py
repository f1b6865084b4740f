"""Waiting jobs: one queue per service.

Jobs are ordered by one fixed key, arrival - priority * priority_step. A job of low priority overtakes newer jobs of
high priority once it has waited long enough, so no job starves. A key never changes, so jobs of one priority stay in
order of arrival: each priority has a lane, a plain deque. Choosing among ten lane heads costs the same for ten jobs and
for a million. Jobs that return (a retry, a dispatch that no worker saw) keep their key and wait in a small heap.

A job that is removed from the middle leaves a dead entry, until that reaches the head or is swept out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from dragoman.core.infinity import inf

SWEEP_FLOOR: Final = 64


class Queued:
    """An entry of a queue. `order` is its fixed key; inf: it is in no queue."""

    __slots__ = ("order",)

    order: float

    @property
    def priority(self) -> int:
        raise NotImplementedError


J = TypeVar("J", bound=Queued)


class Queue(Generic[J]):
    """The waiting jobs of one service."""

    __slots__ = ("_dead", "_lanes", "_next", "_priority_step", "_returned", "length")

    def __init__(self, priority_step: float) -> None:
        self._priority_step = priority_step
        self._lanes: dict[int, deque[J]] = {}
        self._returned: list[tuple[float, int, J]] = []
        self._next = 0
        self._dead = 0
        self.length = 0  # live jobs

    def __iter__(self) -> Iterator[J]:
        """Iterate over the waiting jobs, in no useful order."""
        for lane in self._lanes.values():
            yield from (job for job in lane if job.order != inf)
        yield from (job for order, _, job in self._returned if job.order == order)

    def append(self, job: J, now: float) -> None:
        """Add a new job as the last of its priority."""
        priority = job.priority
        job.order = now - priority * self._priority_step
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = deque()
        lane.append(job)
        self.length += 1

    def put_back(self, job: J, order: float) -> None:
        """Add a job that was dispatched before. It keeps its key, and so its place."""
        job.order = order
        self._next += 1
        heappush(self._returned, (order, self._next, job))
        self.length += 1

    def restore(self, job: J, arrival: float) -> None:
        """Add a job of an earlier run: at the end of its lane if its key allows it, as it does for nearly all."""
        lane = self._lanes.get(job.priority)
        if lane and lane[-1].order > arrival - job.priority * self._priority_step:
            self.put_back(job, arrival - job.priority * self._priority_step)
        else:
            self.append(job, arrival)

    def head(self) -> J | None:
        """Return the job to dispatch next."""
        if not self.length:
            return None
        best: J | None = None
        for lane in self._lanes.values():
            while lane and lane[0].order == inf:
                lane.popleft()
                self._dead -= 1
            if lane and (best is None or lane[0].order < best.order):
                best = lane[0]
        returned = self._returned
        while returned and returned[0][2].order != returned[0][0]:
            heappop(returned)
            self._dead -= 1
        if returned and (best is None or returned[0][0] <= best.order):
            best = returned[0][2]
        return best

    def take(self, job: J) -> None:
        """Remove the job that `head` returned."""
        returned = self._returned
        if returned and returned[0][2] is job:
            heappop(returned)
        else:
            self._lanes[job.priority].popleft()
        job.order = inf
        self.length -= 1
        if self._dead > SWEEP_FLOOR + self.length:
            self._sweep()

    def remove(self, job: J) -> None:
        """Remove a job from any position."""
        job.order = inf
        self.length -= 1
        self._dead += 1
        if self._dead > SWEEP_FLOOR + self.length:
            self._sweep()

    def _sweep(self) -> None:
        """Remove dead entries. Without a limit on them, memory would grow with every cancel."""
        for priority, lane in list(self._lanes.items()):
            alive = deque(job for job in lane if job.order != inf)
            if alive:
                self._lanes[priority] = alive
            else:
                del self._lanes[priority]
        self._returned = [entry for entry in self._returned if entry[2].order == entry[0]]
        heapify(self._returned)
        self._dead = 0
