"""Jobs that wait because their principal runs as many as it may (`max_running`, R166)."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.core.model import Service
from dragoman.core.rights import Principal
from dragoman.core.worker_registry import WorkerRegistry


class RunningLimits:
    """Dispatches such jobs when they may run."""

    def __init__(self, worker_registry: WorkerRegistry, dispatch_waiting: Callable[[Service, float], None]) -> None:
        self._worker_registry = worker_registry
        self._dispatch_waiting = dispatch_waiting

    def unblock(self, principal: Principal, now: float) -> None:
        """Dispatch jobs of the principal, as many as now may run. The service that has waited longest is first."""
        while principal.running < principal.max_running:
            name = next(iter(principal.blocked), None)
            if name is None:
                return
            service = self._worker_registry.services[name]
            service.queue.unblock(principal)
            self._dispatch_waiting(service, now)
