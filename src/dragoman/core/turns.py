"""The next job of a worker of several services (R14).

It is the oldest of the first jobs of their queues. If several principals wait there, they take turns, and so do the
tenants of each: by age alone, many jobs of one for one of the services would delay all later jobs of others for all of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from dragoman.core.model import Job, Service

MOST_TENANTS: Final = 10_000  # whose turns are known; a tenant that was forgotten is like a new one


@final
class Turns:
    """Chooses among the first jobs of queues, and numbers the turns of principals and tenants."""

    __slots__ = ("_last", "tenants")

    def __init__(self) -> None:
        self._last = 0  # number of the last turn; it is even
        self.tenants: dict[tuple[str, str], int] = {}  # last turns, by names of principal and tenant

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
            is_shared = is_shared or head.owner.principal is not best.owner.principal or head.tenant != best.tenant
            if head.order < best.order:
                best = head
        return self._take_turn(services) if is_shared else best

    def _take_turn(self, services: Sequence[Service]) -> Job | None:
        best: Job | None = None
        for service in services:
            head = service.queue.head() if service.queue.length and not service.closed else None
            if head is not None and (best is None or self._place(head) < self._place(best)):
                best = head
        if best is not None:
            self._last += 2
            best.owner.principal.last_turn = self._last
            self._note(best.owner.principal.name, best.tenant, self._last)
            for service in services:
                if service is not best.service:
                    service.queue.pass_turn(best)
        return best

    def _place(self, job: Job) -> tuple[int, int, float]:
        """Return the place of a first job in the order of turns: the principal whose last turn is longest ago is
        first, and of its tenants the one whose last turn is longest ago; then priority and arrival."""
        principal = job.owner.principal
        return principal.last_turn, self.turn_of(principal.name, job.tenant), job.order

    def turn_of(self, principal: str, tenant: str) -> int:
        """Return the number of a tenant's last turn. A new one is before the tenant that was last, and behind all
        others: a stream of new tenants delays nobody for long."""
        turn = self.tenants.get((principal, tenant), -1)
        if turn < 0:
            turn = self._last - 1
            self._note(principal, tenant, turn)
        return turn

    def _note(self, principal: str, tenant: str, turn: int) -> None:
        self.tenants.pop((principal, tenant), None)
        self.tenants[principal, tenant] = turn
        if len(self.tenants) > MOST_TENANTS:
            del self.tenants[next(iter(self.tenants))]  # noted longest ago
