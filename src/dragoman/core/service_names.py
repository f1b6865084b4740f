"""Names of services, up to a limit."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from dragoman.core.counters import UNNAMED
from dragoman.core.infinity import inf
from dragoman.core.model import Service
from dragoman.core.owners import Owner
from dragoman.core.service_status import JobTotals
from dragoman.core.shares import Shares, holder_of

WORKERS_SHARE: Final = 5  # one name in five is reserved for workers: callers cannot use them up (R29)


class ServiceNames:
    """The services that callers requested or workers offer, by name, up to a limit."""

    def __init__(self, priority_step: float, max_services: int) -> None:
        self._priority_step = priority_step
        self.shares = Shares(max_services)
        self._holders: dict[str, str] = {}  # by name: the holder that made it; not those of an earlier run
        self.services: dict[str, Service] = {}
        self.totals = JobTotals()

    def service(self, name: str, owner: Owner | None) -> Service | None:
        """Return the service of that name. Created if the limit allows one more name that no worker offers (R29).
        `owner`: the one that names it; None: another broker of the cluster, or a value in the store."""
        service = self.services.get(name)
        if service is None:
            found = self.requested((name,), owner)
            service = found[0] if found is not None else None
        return service

    def requested(self, names: Collection[str], owner: Owner | None) -> list[Service] | None:
        """Return the services of all these names, or None if some of them would exceed the limit of callers, or the
        share of their principal (R254)."""
        return self.services_for(names, owner, reserve=self.shares.most // WORKERS_SHARE)

    def counted_as(self, service: str) -> str:
        """Return the name under which a dropped job is counted. Unknown names share one, so that a caller with invented
        names cannot flood the log."""
        return service if service in self.services else UNNAMED

    def restore_service(self, name: str) -> Service:
        """Return the service of a job of an earlier run. The limit does not apply."""
        service = self.services.get(name)
        if service is None:
            service = self.services[name] = Service(name, self._priority_step, self.totals)
            self._holders[name] = ""
            self.shares.enter("")
        return service

    def services_for(self, names: Collection[str], owner: Owner | None, reserve: int = 0) -> list[Service] | None:
        """Return the services of these names, or None if they would exceed the limit."""
        missing = [name for name in names if name not in self.services]
        if missing and not self._has_room(owner, len(missing), reserve):
            self._forget_unused(keep=names)
            if not self._has_room(owner, len(missing), reserve):
                return None
        holder = holder_of(owner.principal, owner.address) if owner is not None else ""
        for name in missing:
            self.services[name] = Service(name, self._priority_step, self.totals)
            self._holders[name] = holder
            self.shares.enter(holder)
        return [self.services[name] for name in names]

    def problem(self, owner: Owner) -> str:
        """Return the sentence about a caller that gets no more names."""
        shares, known = self.shares, len(self.services)
        if known >= shares.most - shares.most // WORKERS_SHARE:
            return f"{known} services exist, the maximum (max_services)"
        return shares.problem(owner, "names of services", "max_services")

    def _has_room(self, owner: Owner | None, more: int, reserve: int) -> bool:
        most = self.shares.most - reserve
        if owner is None:
            return self.shares.taken + more <= most
        return self.shares.allows(owner, more, most)

    def _forget_unused(self, keep: Collection[str]) -> None:
        """Remove services that have no workers and no jobs, and that no operator has paused or limited."""
        for service in list(self.services.values()):
            limits = service.limits
            is_limited = limits is not None and (not limits.by_operator.is_empty or limits.alarm != inf)
            if not service.workers and not service.jobs and not service.paused and not is_limited:
                if service.name not in keep:
                    del self.services[service.name]
                    self.shares.leave(self._holders.pop(service.name))
