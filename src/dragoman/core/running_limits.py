"""Dispatch of jobs that waited because of a limit: of their principal (R166), their service or their tenant (R182)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dragoman.core.deadlines import Deadlines
from dragoman.core.infinity import inf
from dragoman.core.model import Job, Service
from dragoman.core.rights import Principal
from dragoman.core.running_account import RunningAccount
from dragoman.core.worker_registry import WorkerRegistry


class Unblocker:
    """Does nothing. A class and not a function: compiled code calls its methods directly."""

    def stopped(self, job: Job, now: float) -> None:
        """Called when a job runs no more, if its service has limits or jobs of its principal wait because of one."""

    def unblock(self, account: RunningAccount, now: float) -> None:
        """Called when an account may run more jobs than before."""

    def reopen(self, service: Service, now: float) -> None:
        """Called when the limits of a service may allow more than before."""


class RunningLimits(Unblocker):
    """Dispatches such jobs when they may run. `Dispatch` is one of these."""

    def __init__(self, worker_registry: WorkerRegistry, deadlines: Deadlines[Any]) -> None:
        self.lease_until = inf  # time from which this broker may not use its share of limits, in a cluster
        self.shared_principals: dict[str, Principal] = {}  # those that have a share
        self._worker_registry = worker_registry
        self._deadlines = deadlines

    def dispatch_waiting(self, service: Service, now: float) -> None:
        raise NotImplementedError

    def stopped(self, job: Job, now: float) -> None:
        principal, service = job.owner.principal, job.service
        limits = service.limits
        if limits is not None:
            tenant = limits.tenants.get((principal.name, job.tenant))
            if tenant is not None and tenant.blocked:
                self.unblock(tenant, now)
            self.dispatch_waiting(service, now)
        if principal.blocked:
            self.unblock(principal, now)

    def unblock(self, account: RunningAccount, now: float) -> None:
        """Dispatch jobs of a principal or a tenant, as many as now may run. The service that has waited longest is
        first."""
        while account.running < account.max_running:
            name = next(iter(account.blocked), None)
            if name is None:
                return
            account.blocked[name].unblock()
            self.dispatch_waiting(self._worker_registry.services[name], now)

    def reopen(self, service: Service, now: float) -> None:
        """Dispatch what the limits of the service allow by now, and set a timer for the next start of its rate."""
        limits = service.limits
        if limits is not None:
            limits.pass_time(now)
            self._limit_starts(service)
            for tenant in list(limits.tenants.values()):
                if tenant.blocked:
                    self.unblock(tenant, now)
        self.dispatch_waiting(service, now)

    def lapse(self, services: Iterable[Service], now: float) -> None:
        """Let no more jobs of these services, and of principals with a share, start: it is not confirmed any more."""
        self.lease_until = inf
        for principal in self.shared_principals.values():
            principal.lapse()
        self._close(services, now)

    def suspend(self, services: Iterable[Service], now: float) -> None:
        """Do the same until the next grant. Submits are accepted as before, until the lease ends."""
        for principal in self.shared_principals.values():
            principal.suspend()
        self._close(services, now)

    def _close(self, services: Iterable[Service], now: float) -> None:
        for service in services:
            limits = service.limits
            if limits is not None and limits.share is not None:
                limits.grant(0, {}, -limits.share.tokens, now)
                service.update_closed()

    def started(self, service: Service, now: float) -> None:
        """Take a token of the rate for a job that starts."""
        assert service.limits is not None
        service.limits.started(now)
        self._limit_starts(service)

    def _limit_starts(self, service: Service) -> None:
        """Close the service while its limits allow no start. A timer opens it if its rate is the reason."""
        limits = service.limits
        assert limits is not None
        service.update_closed()
        if limits.waits_for_rate and limits.share is None:
            self._deadlines.arm(limits, limits.next_start)


def may_take(job: Job) -> bool:
    """True if a job that another broker counts may start: limits of its service and its principal do not concern it,
    and its own broker keeps the order of its queue."""
    return not job.service.paused
