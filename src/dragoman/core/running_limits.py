"""Jobs that wait because their principal runs as many as it may (`max_running`, R166)."""

from __future__ import annotations

from dragoman.core.model import Service
from dragoman.core.rights import Principal
from dragoman.core.worker_registry import WorkerRegistry


class Unblocker:
    """Does nothing. A class and not a function: compiled code calls its method directly."""

    def unblock(self, principal: Principal, now: float) -> None:
        """Called when a principal with such jobs has fewer running jobs than before."""


class RunningLimits(Unblocker):
    """Dispatches such jobs when they may run. `Dispatch` is one of these."""

    def __init__(self, worker_registry: WorkerRegistry) -> None:
        self._worker_registry = worker_registry

    def dispatch_waiting(self, service: Service, now: float) -> None:
        raise NotImplementedError

    def unblock(self, principal: Principal, now: float) -> None:
        """Dispatch jobs of the principal, as many as now may run. The service that has waited longest is first."""
        while principal.running < principal.max_running:
            name = next(iter(principal.blocked), None)
            if name is None:
                return
            service = self._worker_registry.services[name]
            service.queue.unblock(principal)
            self.dispatch_waiting(service, now)
