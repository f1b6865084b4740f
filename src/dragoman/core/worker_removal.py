"""The removal of workers: those that left, and those that have drained."""

from __future__ import annotations

from dragoman.core.effects import RemoveWorker
from dragoman.core.events import WORKER_LEFT
from dragoman.core.limiter import Limiter
from dragoman.core.model import Attempt, Worker
from dragoman.core.shared_state import SharedState
from dragoman.core.states import RemovalReason


class WorkerRemoval:
    """Removes workers from the registry."""

    def __init__(self, state: SharedState, limiter: Limiter) -> None:
        self._limiter = limiter
        self._deadlines = state.deadlines
        self._effects = state.effects
        self._events = state.events
        self._worker_registry = state.worker_registry

    def remove_if_drained(self, worker: Worker, now: float) -> None:
        """Remove a draining worker once it holds no attempt."""
        if not worker.running and not worker.stuck and not worker.stays:
            self._effects.append(RemoveWorker(worker, RemovalReason.DRAINED, "drained"))
            self.remove(worker, "drained", now)

    def remove(self, worker: Worker, reason: str, now: float) -> list[Attempt]:
        """Remove the worker. Returns the attempts that it held."""
        self._deadlines.disarm(worker)
        held = self._worker_registry.leave(worker)
        if self._events.wanted & WORKER_LEFT:
            self._events.worker_changed(WORKER_LEFT, worker, reason, len(held))
        for service in worker.services:
            if service.limits is not None:
                self._limiter.undeclare(worker, service, now)
        return held
