"""Turns among the waiting jobs of one service: by principal, then by tenant.

Each principal gets one job dispatched, then the next, and so do the tenants of one principal. So many jobs of one do
not delay those of another. Jobs of one principal and tenant have an order of their own (`core/queues.py`).

A principal or a tenant that runs as many jobs as it may is skipped: the first dispatch that comes to its queue takes
that out of the ring, and `unblock` puts it back (`core/running_account.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from dragoman.core.infinity import inf
from dragoman.core.queues import SWEEP_FLOOR, J, Queue, Waiting
from dragoman.core.rights import Principal
from dragoman.core.running_account import RunningAccount
from dragoman.core.service_limits import ServiceLimits, Tenant
from dragoman.core.service_status import JobTotals


class Ring(Waiting[J]):
    """Parties that take turns."""

    __slots__ = ("_turns", "members")

    def __init__(self, service: str, account: RunningAccount | None) -> None:
        super().__init__(service, account)
        self.members: dict[str, Waiting[J]] = {}
        self._turns: deque[Waiting[J]] = deque()  # members in the order of their turns; one may be empty by now

    def let_in(self, member: Waiting[J]) -> None:
        self._turns.append(member)
        if not self.has_turn:
            self.enter()

    def head(self) -> J | None:
        """Return the job to dispatch next: the first of the member whose turn it is. None: none may be dispatched.

        A member that may run no more jobs is taken out of the ring.
        """
        turns = self._turns
        while turns:
            member = turns[0]
            account = member.account
            if not member.length:
                self.end_turns(member)
            elif account is not None and account.running >= account.max_running:
                turns.popleft()
                member.is_blocked = True
                account.blocked[self.service] = member
            else:
                job = member.head()
                if job is not None:
                    return job
                turns.popleft()
                member.has_turn = False  # all of its own members are blocked; the first that is not lets it in again
        return None

    def take(self, job: J) -> None:
        """Remove the job that `head` returned, and let the next member take its turn."""
        turns = self._turns
        member = turns[0]
        member.take(job)
        self.length -= 1
        if not self.length:
            self.head()  # ends the turns of all members
        elif not member.length:
            self.end_turns(member)
        elif len(turns) > 1:
            turns.rotate(-1)

    def oldest(self) -> J | None:
        """Return the job among the first of all members that has the lowest key, whether it may run or not."""
        best: J | None = None
        for member in self.members.values():
            first = member.oldest()
            if first is not None and (best is None or first.order < best.order):
                best = first
        return best

    def count_before(self, job: J, most: int) -> int | None:
        """Return the number of jobs that are dispatched before this one, if no job arrives or returns. None: more than
        `most` jobs would have to be counted one by one."""
        own = self.members[self.name_in(job)]
        before = own.count_before(job, most)
        if before is None:
            return None
        ahead = before
        has_turn = False  # the turn of this job's party comes after those of the members so far
        for member in self._turns:
            if member is own:
                has_turn = True
            else:
                ahead += min(member.length, before if has_turn else before + 1)
        return ahead

    def leaves(self) -> list[Queue[J]]:
        return [leaf for member in self.members.values() for leaf in member.leaves()]

    def name_in(self, job: J) -> str:
        """Return the name of the member that the job belongs to."""
        raise NotImplementedError

    def end_turns(self, member: Waiting[J]) -> None:
        """Take the first member, which is empty, out of the ring, and forget it."""
        raise NotImplementedError


class TenantQueues(Ring[J]):
    """The waiting jobs of one service and principal, if some have a tenant, or tenants have a limit.

    There may be very many tenants, so the oldest job is found by a heap of queues. An entry has the key of the first
    job of its queue, or a lower one; it is corrected when it comes to the top.
    """

    __slots__ = ("_by_age", "_emptied", "_number", "principal")

    def __init__(self, service: str, principal: Principal) -> None:
        super().__init__(service, principal)
        self.principal = principal
        self._by_age: list[tuple[float, int, Queue[J]]] = []
        self._number = 0
        self._emptied = 0  # queues that a removal has left empty, since the last sweep

    def note(self, queue: Queue[J], order: float) -> None:
        """Note a job that was added to a queue."""
        if order < queue.lowest:
            queue.lowest = order
            self._number += 1
            heappush(self._by_age, (order, self._number, queue))
            if len(self._by_age) > SWEEP_FLOOR + 2 * len(self.members):
                self._by_age = [each for each in self._by_age if each[2].length and each[2].lowest == each[0]]
                heapify(self._by_age)

    def oldest(self) -> J | None:
        heap = self._by_age
        while heap:
            order, number, queue = heap[0]
            first = queue.head()
            if first is None:
                queue.lowest = inf
                heappop(heap)
            elif order != queue.lowest:
                heappop(heap)  # it has another entry
            elif first.order <= order:
                return first
            else:
                queue.lowest = first.order
                heapreplace(heap, (first.order, number, queue))
        return None

    @property
    def is_shared(self) -> bool:
        """True if several tenants may wait here."""
        return len(self._turns) > 1

    def pass_turn(self, tenant: str) -> None:
        """Let the next tenant be first, if it is the turn of this one: it has got a job of another service."""
        if self._turns and self._turns[0] is self.members.get(tenant):
            self._turns.rotate(-1)

    def clear(self) -> None:
        """Forget all queues: there are no jobs."""
        self.head()
        self._by_age.clear()

    def name_in(self, job: J) -> str:
        return job.tenant

    def end_turns(self, member: Waiting[J]) -> None:
        assert isinstance(member, Queue)
        self._turns.popleft()
        self._forget(member)

    def emptied(self) -> None:
        """Forget the empty queues, if there may be many. Only removals leave some: a dispatch forgets them at once."""
        self._emptied += 1
        if self._emptied > SWEEP_FLOOR + len(self.members) // 2:
            self._emptied = 0
            empty = [member for member in self.members.values() if not member.length]
            for member in empty:
                assert isinstance(member, Queue)
                self._forget(member)
            self._turns = deque(member for member in self._turns if member.has_turn)

    def _forget(self, queue: Queue[J]) -> None:
        queue.has_turn = False
        del self.members[queue.tenant]
        if isinstance(queue.account, Tenant):
            queue.account.queue_dropped()


class FairQueue(Ring[J]):
    """The waiting jobs of one service.

    Nearly always there is one principal and no tenant. A principal without tenants has a plain `Queue`, and the one
    that was used last is kept at hand.
    """

    __slots__ = ("_last", "_limits", "_priority_step", "_totals")

    def __init__(self, priority_step: float, service: str, totals: JobTotals) -> None:
        super().__init__(service, None)
        self.ring = self
        self.has_turn = True
        self._totals = totals
        self._priority_step = priority_step
        self._last: Queue[J] | None = None  # of a principal without tenants
        self._limits: ServiceLimits | None = None

    @property
    def is_shared(self) -> bool:
        """True if several principals, or several tenants of one, may wait here."""
        turns = self._turns
        if len(turns) == 1:
            only = turns[0]
            return isinstance(only, TenantQueues) and only.is_shared
        return len(turns) > 1

    def __iter__(self) -> Iterator[J]:
        """Iterate over the waiting jobs, in no useful order."""
        for leaf in self.leaves():
            yield from leaf

    # ---------------------------------------------------------------- jobs

    def append(self, job: J, now: float) -> None:
        """Add a new job as the last of its principal, tenant and priority."""
        queue = self._queue_of(job)
        queue.append(job, now)
        if queue.ring is self:  # nearly always: without a further call
            self.length += 1
            self._totals.waiting += 1
        else:
            self._added(job, queue)

    def put_back(self, job: J, order: float) -> None:
        """Add a job that was dispatched before. It keeps its key, and so its place among the jobs of its tenant."""
        queue = self._queue_of(job)
        queue.put_back(job, order)
        self._added(job, queue)

    def restore(self, job: J, arrival: float) -> None:
        """Add a job of an earlier run."""
        queue = self._queue_of(job)
        queue.restore(job, arrival)
        self._added(job, queue)

    def take(self, job: J) -> None:
        turns = self._turns
        member = turns[0]
        member.take(job)
        self.length -= 1
        self._totals.waiting -= 1
        if not self.length:
            self.head()
        elif not member.length:
            self.end_turns(member)
        elif len(turns) > 1:
            turns.rotate(-1)

    def pass_turn(self, job: J) -> None:
        """Let the next party be first, if it is the turn of this job's: it got the job, which is of another service."""
        turns = self._turns
        if turns and turns[0] is self.members.get(job.owner.principal.name):
            first = turns[0]
            if isinstance(first, TenantQueues):
                first.pass_turn(job.tenant)
            turns.rotate(-1)

    def remove(self, job: J) -> None:
        """Remove a job from any position."""
        queue = self._queue_of(job)
        queue.remove(job)
        self.length -= 1
        self._totals.waiting -= 1
        if queue.is_blocked and not queue.length:
            queue.unblock()  # an empty queue loses its turn when that comes
        ring = queue.ring
        if isinstance(ring, TenantQueues):
            ring.length -= 1
            if ring.is_blocked and not ring.length:
                ring.unblock()
            if not queue.length:
                ring.emptied()
        if not self.length:
            self.head()  # ends the turns of all queues

    def _added(self, job: J, queue: Queue[J]) -> None:
        self.length += 1
        self._totals.waiting += 1
        ring = queue.ring
        if isinstance(ring, TenantQueues):
            ring.length += 1
            ring.note(queue, job.order)

    # ---------------------------------------------------------------- principals and tenants

    def name_in(self, job: J) -> str:
        return job.owner.principal.name

    def limit_tenants(self, limits: ServiceLimits) -> None:
        """Give each tenant its account of running jobs. Blocked ones stay blocked until they are unblocked."""
        self._limits = limits
        self._last = None
        for name, member in list(self.members.items()):
            if not member.has_turn and not member.length:
                del self.members[name]
            elif isinstance(member, TenantQueues):
                for leaf in member.leaves():
                    leaf.account = limits.account_of(leaf.principal.name, leaf.tenant)
            elif limits.limits_tenants:
                assert isinstance(member, Queue)
                self._split(member.principal, member)

    def _queue_of(self, job: J) -> Queue[J]:
        """Return the queue of the job's principal and tenant. It has a turn."""
        principal, tenant = job.owner.principal, job.tenant
        queue = self._last
        if queue is None or tenant or queue.principal is not principal:
            queue = self._find(principal, tenant)
        if not queue.has_turn:
            if queue.ring is self:
                queue.has_turn = True
                self._turns.append(queue)
            else:
                queue.enter()
        return queue

    def _find(self, principal: Principal, tenant: str) -> Queue[J]:
        """Return the queue of a principal and tenant, and make it if there is none."""
        member = self.members.get(principal.name)
        limits = self._limits
        is_plain = not tenant and (limits is None or not limits.limits_tenants)
        if is_plain and (member is None or isinstance(member, Queue)):
            if member is None:
                member = self._new_queue(principal, "", principal)
                self._add(principal, member)
            self._last = member
            return member
        if isinstance(member, TenantQueues):
            tenants = member
        else:
            assert member is None or isinstance(member, Queue)
            tenants = self._split(principal, member)
        queue = tenants.members.get(tenant)
        if queue is None:
            account = None if limits is None else limits.account_of(principal.name, tenant)
            queue = tenants.members[tenant] = self._new_queue(principal, tenant, account)
            queue.ring = tenants
        assert isinstance(queue, Queue)
        return queue

    def _new_queue(self, principal: Principal, tenant: str, account: RunningAccount | None) -> Queue[J]:
        return Queue(self.service, account, self._priority_step, principal, tenant)

    def _add(self, principal: Principal, member: Waiting[J]) -> None:
        member.ring = self
        self.members[principal.name] = member

    def _split(self, principal: Principal, queue: Queue[J] | None) -> TenantQueues[J]:
        """Give a principal queues by tenant. The jobs of its queue, if it had one, belong to the tenant ""."""
        tenants: TenantQueues[J] = TenantQueues(self.service, principal)
        self._add(principal, tenants)
        if queue is not None and queue is self._last:
            self._last = None
        if queue is None or not queue.has_turn:  # without a turn it was only kept at hand
            return tenants
        tenants.length, tenants.has_turn, tenants.is_blocked = queue.length, True, queue.is_blocked
        if queue.is_blocked:
            principal.blocked[self.service] = tenants
        else:
            self._turns = deque(tenants if each is queue else each for each in self._turns)
        queue.account = None if self._limits is None else self._limits.account_of(principal.name, "")
        queue.is_blocked = False
        queue.ring = tenants
        tenants.members[""] = queue
        tenants.let_in(queue)
        first = queue.head()
        if first is not None:
            tenants.note(queue, first.order)
        return tenants

    def end_turns(self, member: Waiting[J]) -> None:
        self._turns.popleft()
        member.has_turn = False
        if isinstance(member, TenantQueues):
            member.clear()
            del self.members[member.principal.name]
        elif member is not self._last or len(self.members) > 1:
            assert isinstance(member, Queue)
            del self.members[member.principal.name]
            if member is self._last:
                self._last = None
