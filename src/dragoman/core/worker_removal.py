"""The removal of workers: those that left, those that have drained, and silent ones that turn out to be alive."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from dragoman.core.effects import RemoveWorker
from dragoman.core.events import WORKER_LEFT
from dragoman.core.limiter import Limiter
from dragoman.core.model import Attempt, Worker
from dragoman.core.recipients import dialect_of
from dragoman.core.rights import Principal
from dragoman.core.shared_state import SharedState
from dragoman.core.states import RemovalReason

SILENT_FOR: Final = 600.0  # seconds for which a worker that was removed is known again
SILENT_KEPT: Final = 10_000


class WorkerRemoval:
    """Removes workers from the registry."""

    def __init__(self, state: SharedState, limiter: Limiter) -> None:
        self._limiter = limiter
        self._counters = state.counters
        # Workers that were removed because they were silent, by principal, dialect and name; the oldest first.
        self._silent: OrderedDict[tuple[str, str, str], float] = OrderedDict()
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
            if service.parameters is not None:
                service.parameters.undeclare(worker.id)
        return held

    # ---------------------------------------------------------------- silent workers

    def note_silent(self, worker: Worker, now: float) -> None:
        """A worker is removed because it was silent: it is dead, or was only frozen or cut off."""
        key = (worker.owner.principal.name, dialect_of(worker.recipient), worker.name)
        self._silent[key] = now
        self._silent.move_to_end(key)
        while len(self._silent) > SILENT_KEPT or next(iter(self._silent.values())) + SILENT_FOR < now:
            self._silent.popitem(last=False)

    def appeared(self, principal: Principal, dialect: str, name: str, now: float) -> None:
        """A worker joins, or sends something under an identity that has ended. Counts it if it was removed because it
        was silent, not long ago: it was alive."""
        if self._silent and self._silent.pop((principal.name, dialect, name), -SILENT_FOR) + SILENT_FOR > now:
            self._counters.false_expiries += 1
