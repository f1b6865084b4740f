"""Waiting jobs of one service, principal and tenant.

Jobs are ordered by one fixed key, arrival - priority * priority_step. A job of low priority overtakes newer jobs of
high priority once it has waited long enough, so no job starves. A key never changes, so jobs of one priority stay in
order of arrival: each priority has a lane, a plain deque. Choosing among ten lane heads costs the same for ten jobs and
for a million. Jobs that return (a retry, a dispatch that no worker saw) keep their key and wait in a small heap.

A job that is removed from the middle leaves a dead entry, until that reaches the head or is swept out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from dragoman.core.infinity import inf
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.rights import Principal
from dragoman.core.running_account import Blockable, RunningAccount

SWEEP_FLOOR: Final = 64


class Queued:
    """An entry of a queue. `order` is its fixed key; inf: it is in no queue."""

    __slots__ = ("options", "order", "owner")

    options: JobOptions
    order: float
    owner: Owner

    @property
    def tenant(self) -> str:
        raise NotImplementedError


J = TypeVar("J", bound=Queued)


class Waiting(Blockable, Generic[J]):
    """Waiting jobs of one party, a principal or a tenant, which takes turns with others in a ring."""

    __slots__ = ("account", "has_turn", "is_blocked", "length", "ring", "service")

    ring: Waiting[J]

    def __init__(self, service: str, account: RunningAccount | None) -> None:
        self.service = service
        self.account = account  # counts the running jobs of the party; None: nobody limits them
        self.has_turn = False  # it is in its ring, or blocked
        self.is_blocked = False  # it was taken out of the ring, because its account may run no more jobs
        self.length = 0  # live jobs

    def enter(self) -> None:
        """Take turns from now on, as the last in the ring."""
        self.has_turn = True
        self.ring.let_in(self)

    def unblock(self) -> None:
        account = self.account
        assert account is not None
        self.is_blocked = False
        del account.blocked[self.service]
        self.enter()

    def let_in(self, member: Waiting[J]) -> None:
        raise NotImplementedError

    def head(self) -> J | None:
        raise NotImplementedError

    def take(self, job: J) -> None:
        raise NotImplementedError

    def oldest(self) -> J | None:
        raise NotImplementedError

    def count_before(self, job: J, most: int) -> int | None:
        raise NotImplementedError

    def leaves(self) -> list[Queue[J]]:
        raise NotImplementedError


class Queue(Waiting[J]):
    """The waiting jobs of one service, principal and tenant."""

    __slots__ = ("_dead", "_lanes", "_next", "_priority_step", "_returned", "lowest", "principal", "tenant")

    def __init__(
        self, service: str, account: RunningAccount | None, priority_step: float, principal: Principal, tenant: str
    ) -> None:
        super().__init__(service, account)
        self.principal = principal
        self.tenant = tenant
        self.lowest = inf  # the key by which `TenantQueues` knows it: at most that of its first job
        self._priority_step = priority_step
        self._lanes: dict[int, deque[J]] = {}
        self._returned: list[tuple[float, int, J]] = []
        self._next = 0
        self._dead = 0

    def __iter__(self) -> Iterator[J]:
        """Iterate over the waiting jobs, in no useful order."""
        for lane in self._lanes.values():
            yield from (job for job in lane if job.order != inf)
        yield from (job for order, _, job in self._returned if job.order == order)

    def append(self, job: J, now: float) -> None:
        """Add a new job as the last of its priority."""
        priority = job.options.priority
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
        priority = job.options.priority
        lane = self._lanes.get(priority)
        if lane and lane[-1].order > arrival - priority * self._priority_step:
            self.put_back(job, arrival - priority * self._priority_step)
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

    def oldest(self) -> J | None:
        return self.head()

    def leaves(self) -> list[Queue[J]]:
        return [self]

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
            is_own = priority == job.options.priority and not is_returned
            before += jobs.index(job, first) if is_own else first  # jobs of one iteration have the same key
        return before

    def take(self, job: J) -> None:
        """Remove the job that `head` returned."""
        returned = self._returned
        if returned and returned[0][2] is job:
            heappop(returned)
        else:
            self._lanes[job.options.priority].popleft()
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


def _order_of(job: Queued) -> float:
    return job.order
