"""Attempts at other brokers whose jobs have moved from this one to a third: they count here until that counts them.

They count in its reports, and against its own shares of limits: in the place of such a job, no other one may start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Token

Tenant = tuple[str, str]  # principal and name
Owner = tuple[str, str, int]  # broker, its run, and the epoch of the shard


@final
class MovedAttempt:
    """One such attempt."""

    __slots__ = ("left", "service", "tenant", "token", "until")

    def __init__(self, service: str, tenant: Tenant, token: Token, left: Owner | None) -> None:
        self.service: Final = service
        self.tenant: Final = tenant
        self.token: Final = token
        self.left: Final = left  # this broker, if it still has the shard that the job leaves
        self.until = inf  # known when the next owner has its job


@final
class MovedAttempts:
    """Counts them."""

    def __init__(
        self, broker: Broker, name: str, counting_owner: Callable[[Token], Owner | None], gone_after: float
    ) -> None:
        """`name`: of this broker. `counting_owner`: the broker that has all jobs of the shard of an attempt.
        `gone_after`: seconds in which its report of them arrives at the granter, or it is gone."""
        self._name = name
        self._broker = broker
        self._counting_owner = counting_owner
        self._gone_after = gone_after
        self._all: list[MovedAttempt] = []

    def add(self, attempt: Attempt) -> None:
        """Count an attempt whose job leaves. Call it before the job is not counted any more."""
        job = attempt.job
        is_counted = job.service.limits is not None or job.principal.share is not None
        if is_counted and job.options.is_limited:
            owner = self._counting_owner(attempt.token)
            left = owner if owner is not None and owner[0] == self._name else None
            moved = MovedAttempt(job.service.name, (job.principal.name, job.tenant), attempt.token, left)
            self._all.append(moved)
            self._limit(moved)

    def settle(self, now: float) -> None:
        """Count those no more whose next owner has reported them."""
        if not self._all:
            return
        for each in self._all:
            if each.until == inf and self._counting_owner(each.token) not in (None, each.left):
                each.until = now + self._gone_after
        settled = [each for each in self._all if each.until <= now]
        self._all = [each for each in self._all if each.until > now]
        for each in settled:
            self._limit(each)
            self._broker.dispatch.reopen(self._broker.worker_registry.services[each.service], now)
            principal = self._broker.principals.named(each.tenant[0])
            if principal.blocked:
                self._broker.dispatch.unblock(principal, now)

    def _limit(self, moved: MovedAttempt) -> None:
        """Take the places of such attempts from the shares of this one's service and principal."""
        service = self._broker.limiter.limited.get(moved.service)
        if service is not None and service.limits is not None and service.limits.share is not None:
            service.limits.set_moved(self.of_services().get(moved.service, {}))
            service.update_closed()
        principal = self._broker.principals.named(moved.tenant[0])
        if principal.share is not None:
            principal.share.moved = self.principals().count(principal.name)
            principal.update_limits()

    def of_services(self) -> dict[str, dict[Tenant, int]]:
        """Return their numbers, by service and tenant."""
        found: dict[str, dict[Tenant, int]] = {}
        for each in self._all:
            tenants = found.setdefault(each.service, {})
            tenants[each.tenant] = tenants.get(each.tenant, 0) + 1
        return found

    def principals(self) -> list[str]:
        """Return the principal of each."""
        return [each.tenant[0] for each in self._all]
