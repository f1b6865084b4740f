"""Names of services, up to a limit."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from dragoman.core.counters import UNNAMED
from dragoman.core.infinity import inf
from dragoman.core.model import Service
from dragoman.core.service_status import JobTotals

WORKERS_SHARE: Final = 5  # one name in five is reserved for workers: callers cannot use them up (R29)


class ServiceNames:
    """The services that callers requested or workers offer, by name, up to a limit."""

    def __init__(self, priority_step: float, max_services: int) -> None:
        self._priority_step = priority_step
        self._max_services = max_services
        self.services: dict[str, Service] = {}
        self.totals = JobTotals()

    def service(self, name: str) -> Service | None:
        """Return the service of that name. Created if the limit allows one more name that no worker offers (R29)."""
        service = self.services.get(name)
        if service is None:
            found = self.requested((name,))
            service = found[0] if found is not None else None
        return service

    def requested(self, names: Collection[str]) -> list[Service] | None:
        """Return the services of all these names, or None if some of them would exceed the limit of callers."""
        return self.services_for(names, reserve=self._max_services // WORKERS_SHARE)

    def counted_as(self, service: str) -> str:
        """Return the name under which a dropped job is counted. Unknown names share one, so that a caller with invented
        names cannot flood the log."""
        return service if service in self.services else UNNAMED

    def restore_service(self, name: str) -> Service:
        """Return the service of a job of an earlier run. The limit does not apply."""
        service = self.services.get(name)
        if service is None:
            service = self.services[name] = Service(name, self._priority_step, self.totals)
        return service

    def services_for(self, names: Collection[str], reserve: int = 0) -> list[Service] | None:
        """Return the services of these names, or None if they would exceed the limit."""
        missing = [name for name in names if name not in self.services]
        most = self._max_services - reserve
        if len(self.services) + len(missing) > most:
            self._forget_unused(keep=names)
            if len(self.services) + len(missing) > most:
                return None
        for name in missing:
            self.services[name] = Service(name, self._priority_step, self.totals)
        return [self.services[name] for name in names]

    def _forget_unused(self, keep: Collection[str]) -> None:
        """Remove services that have no workers and no jobs, and that no operator has paused or limited."""
        for service in list(self.services.values()):
            limits = service.limits
            is_limited = limits is not None and (not limits.by_operator.is_empty or limits.alarm != inf)
            if not service.workers and not service.jobs and not service.paused and not is_limited:
                if service.name not in keep:
                    del self.services[service.name]
