"""Restores the jobs of an earlier run from the store, while the broker already serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dragoman.core.effects import Effect
from dragoman.core.recipients import Recipient
from dragoman.core.restore import StoredJob, begin_loading, end_loading, restore
from dragoman.operations.limits import restore_limits
from dragoman.operations.pauses import restore_pauses
from dragoman.operations.scheduler import Scheduler
from dragoman.server.runner import Runner


class StoredJobs(Protocol):
    """The store, while its jobs are restored."""

    @property
    def last_number(self) -> int: ...

    def notes(self) -> dict[str, str]: ...

    def load(self, deliver: Callable[[list[StoredJob]], None], finished: Callable[[], None]) -> None: ...


class NullBrokerSide(Recipient):
    """Stands in for workers of the previous run that have not reconnected. Ignores all effects."""

    def execute(self, effect: Effect, now: float) -> None:
        pass


class Restore:
    """One start of a broker with a store. `finished` receives the number of restored jobs and the seconds it took."""

    def __init__(
        self, store: StoredJobs, runner: Runner, now: Callable[[], float], finished: Callable[[int, float], None]
    ) -> None:
        self._store = store
        self._runner = runner
        self._now = now
        self._finished = finished
        self._null_side = NullBrokerSide()
        self._jobs = 0
        self.unread_limits: list[str] = []  # services whose stored limits cannot be read

    def prepare(self, offset: float, now: float) -> dict[str, str]:
        """Restore numbers, paused services and limits, before any connection is accepted. Returns all stored values.
        `offset`: seconds that the wall clock is ahead of the broker's clock."""
        broker = self._runner.broker
        broker.job_registry.pending_commits.begin_after(self._store.last_number)
        broker.job_registry.kept.has_store = True
        notes = self._store.notes()
        restore_pauses(broker, notes, offset)
        broker.job_registry.groups.restore(notes)
        broker.job_registry.remembered.restore(notes, now)
        if self._store.last_number > 0:
            begin_loading(broker)
            broker.limiter.began = now  # its rates may have allowed a start a moment ago
        self.unread_limits = restore_limits(broker, notes, now)
        return notes

    def start(self) -> None:
        self._began = self._now()
        self._store.load(self._restore_batch, self._end)

    def _restore_batch(self, batch: list[StoredJob]) -> None:
        broker, now = self._runner.broker, self._now()
        for kept in batch:
            namesake = broker.jobs.get(kept.id)
            if namesake is not None:  # a call with the same id: the stored job was first
                broker.withdraw(namesake, now, "a stored job has the same id")
            restore(broker, kept, now, self._null_side)
        self._jobs += len(batch)
        self._runner.run_once()

    def _end(self) -> None:
        broker, now = self._runner.broker, self._now()
        end_loading(broker, now)
        broker.limiter.loaded(now)
        broker.counters.late_results += broker.job_registry.early.clear()
        self._finished(self._jobs, now - self._began)


def prepare_restore(restore: Restore, scheduler: Scheduler, offset: float, now: float, log: Any) -> None:
    """Restore everything besides jobs, and log what cannot be read."""
    notes = restore.prepare(offset, now)
    for name in restore.unread_limits:
        log.warning("limits invalid", service=name, note="set them again with dragoman limit")
    for name, problem in scheduler.load(notes, now, now + offset).items():
        log.warning("schedule invalid", name=name, problem=problem)
