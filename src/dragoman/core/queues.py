"""Waiting jobs: one queue per service and principal.

Principals with waiting jobs take turns (`FairQueue`), so that many jobs of one do not delay those of another. Jobs of
one principal are ordered by one fixed key, arrival - priority * priority_step. A job of low priority overtakes newer
jobs of high priority once it has waited long enough, so no job starves. A key never changes, so jobs of one priority
stay in order of arrival: each priority has a lane, a plain deque. Choosing among ten lane heads costs the same for ten
jobs and for a million. Jobs that return (a retry, a dispatch that no worker saw) keep their key and wait in a small
heap.

A principal that runs as many jobs as it may (`max_running`) is skipped: the first dispatch that comes to its queue
takes that out of the ring, and `FairQueue.unblock` puts it back. So a principal that waits costs nothing.

A job that is removed from the middle leaves a dead entry, until that reaches the head or is swept out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from dragoman.core.infinity import inf
from dragoman.core.rights import Principal
from dragoman.core.service_status import JobTotals

SWEEP_FLOOR: Final = 64


class Queued:
    """An entry of a queue. `order` is its fixed key; inf: it is in no queue."""

    __slots__ = ("order",)

    order: float

    @property
    def priority(self) -> int:
        raise NotImplementedError

    @property
    def principal(self) -> Principal:
        raise NotImplementedError


J = TypeVar("J", bound=Queued)


class Queue(Generic[J]):
    """The waiting jobs of one service and principal."""

    # fmt: off
    __slots__ = (
        "_dead", "_lanes", "_next", "_priority_step", "_returned", "has_turn", "is_blocked", "length", "principal",
    )
    # fmt: on

    def __init__(self, priority_step: float, principal: Principal) -> None:
        self.principal = principal
        self.has_turn = False  # it is in the ring of its service, or blocked
        self.is_blocked = False  # it has been taken out of the ring, because its principal runs `max_running` jobs
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

    def count_before(self, job: J, most: int) -> int | None:
        """Return the number of jobs that are dispatched before this one. None: dead entries would have to be left out,
        among more than `most` jobs."""
        if self._dead and self.length > most:
            return None
        order = job.order
        returned = [(each, other) for each, _, other in sorted(self._returned) if other.order == each]
        position = [other is job for _, other in returned]
        is_returned = True in position
        before = position.index(True) if is_returned else sum([each <= order for each, _ in returned])
        for priority, lane in self._lanes.items():
            jobs = [each for each in lane if each.order != inf] if self._dead else lane
            first = bisect_left(jobs, order, key=_order_of)
            is_own = priority == job.priority and not is_returned
            before += jobs.index(job, first) if is_own else first  # jobs of one iteration have the same key
        return before

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


class FairQueue(Generic[J]):
    """The waiting jobs of one service. Principals take turns: each gets one job dispatched, then the next.

    Nearly always there is one principal, so the queue that was used last is kept at hand.
    """

    __slots__ = ("_by_principal", "_last", "_priority_step", "_ring", "_totals", "last_turn", "length", "service")

    def __init__(self, priority_step: float, service: str, totals: JobTotals) -> None:
        self.service = service
        self._totals = totals
        self._priority_step = priority_step
        self._by_principal: dict[str, Queue[J]] = {}
        self._last: Queue[J] | None = None
        self._ring: deque[Queue[J]] = deque()  # queues in the order of their turns; one may be empty by now
        self.length = 0  # live jobs of all principals
        self.last_turn = 0  # number of the last turn of a principal here, at a worker of several services

    def __iter__(self) -> Iterator[J]:
        """Iterate over the waiting jobs, in no useful order."""
        for queue in self._by_principal.values():
            yield from queue

    @property
    def queues(self) -> list[Queue[J]]:
        """The queues of principals that had waiting jobs."""
        return list(self._by_principal.values())

    @property
    def is_shared(self) -> bool:
        """True if several principals may wait here."""
        return len(self._ring) > 1

    def append(self, job: J, now: float) -> None:
        """Add a new job as the last of its principal and priority."""
        self._queue_of(job.principal).append(job, now)
        self.length += 1
        self._totals.waiting += 1

    def put_back(self, job: J, order: float) -> None:
        """Add a job that was dispatched before. It keeps its key, and so its place among the jobs of its principal."""
        self._queue_of(job.principal).put_back(job, order)
        self.length += 1
        self._totals.waiting += 1

    def restore(self, job: J, arrival: float) -> None:
        """Add a job of an earlier run."""
        self._queue_of(job.principal).restore(job, arrival)
        self.length += 1
        self._totals.waiting += 1

    def head(self) -> J | None:
        """Return the job to dispatch next: the first of the principal whose turn it is. None: none may be dispatched.

        A queue whose principal may run no more jobs is taken out of the ring.
        """
        ring = self._ring
        while ring:
            queue = ring[0]
            principal = queue.principal
            if not queue.length:
                self._end_turns(queue)
            elif principal.running < principal.max_running:
                return queue.head()
            else:
                queue.is_blocked = True
                principal.blocked[self.service] = None
                ring.popleft()
        return None

    def oldest(self) -> J | None:
        """Return the job among the first of all principals that has the lowest key, whether it may run or not."""
        best: J | None = None
        for queue in self._by_principal.values():
            head = queue.head()
            if head is not None and (best is None or head.order < best.order):
                best = head
        return best

    def ahead_of(self, job: J, most: int) -> int | None:
        """Return the number of waiting jobs that are dispatched before this one, if no job arrives or returns. None:
        more than `most` jobs would have to be counted one by one."""
        own = self._by_principal[job.principal.name]
        before = own.count_before(job, most)
        if before is None:
            return None
        ahead = before
        has_turn = False  # the turn of this job's principal comes after those of the queues so far
        for queue in self._ring:
            if queue is own:
                has_turn = True
            else:
                ahead += min(queue.length, before if has_turn else before + 1)
        return ahead

    def unblock(self, principal: Principal) -> None:
        """Let the principal take its turns again."""
        queue = self._by_principal.get(principal.name)
        if queue is not None and queue.is_blocked:
            queue.is_blocked = False
            del principal.blocked[self.service]
            self._ring.append(queue)

    def take(self, job: J) -> None:
        """Remove the job that `head` returned, and let the next principal take its turn."""
        ring = self._ring
        queue = ring[0]
        queue.take(job)
        self.length -= 1
        self._totals.waiting -= 1
        if not self.length:
            self.head()  # ends the turns of all queues
        elif not queue.length:
            self._end_turns(queue)
        elif len(ring) > 1:
            ring.rotate(-1)

    def remove(self, job: J) -> None:
        """Remove a job from any position."""
        queue = self._queue_of(job.principal)
        queue.remove(job)
        self.length -= 1
        self._totals.waiting -= 1
        if queue.is_blocked and not queue.length:
            self.unblock(queue.principal)  # an empty queue loses its turn when that comes
        if not self.length:
            self.head()  # ends the turns of all queues

    def _queue_of(self, principal: Principal) -> Queue[J]:
        queue = self._last
        if queue is None or queue.principal is not principal:
            queue = self._by_principal.get(principal.name)
            if queue is None:
                queue = self._by_principal[principal.name] = Queue(self._priority_step, principal)
            self._last = queue
        if not queue.has_turn:
            queue.has_turn = True
            self._ring.append(queue)
        return queue

    def _end_turns(self, queue: Queue[J]) -> None:
        """Take the first queue, which is empty, out of the ring. Its dead entries go with it."""
        self._ring.popleft()
        queue.has_turn = False
        if queue is not self._last or len(self._by_principal) > 1:
            del self._by_principal[queue.principal.name]
            if queue is self._last:
                self._last = None


def _order_of(job: Queued) -> float:
    return job.order
