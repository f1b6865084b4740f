"""Bringing back what an earlier run left in the diary, while the broker serves already."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.core.effects import Effect
from dragoman.core.recipients import Recipient
from dragoman.core.restore import StoredJob, restore
from dragoman.server.runner import Runner
from dragoman.store.sqlite import SqliteStore

PAUSE = "pause/"  # notes about services: behind it the name, under it who paused it


class NullBrokerSide(Recipient):
    """The session of workers that may have gone with an earlier run: whatever they are told, nobody hears it."""

    def execute(self, effect: Effect, now: float) -> None:
        pass


class Restore:
    """One start of a broker with a diary. `finished` is told how many jobs came back, and in how many seconds."""

    def __init__(
        self, store: SqliteStore, runner: Runner, now: Callable[[], float], finished: Callable[[int, float], None]
    ) -> None:
        self._store = store
        self._runner = runner
        self._now = now
        self._finished = finished
        self._nobody = NullBrokerSide()
        self._jobs = 0

    def prepare(self) -> dict[str, str]:
        """Before anybody is let in: numbers go on where they ended, what was paused stays so. Returns all notes."""
        broker = self._runner.broker
        pending_commits = broker.job_registry.pending_commits
        pending_commits.last = pending_commits.safe = self._store.last_number
        notes = self._store.notes()
        for key, by in notes.items():
            if key.startswith(PAUSE):
                broker.pause(key.removeprefix(PAUSE), by)
        broker.job_registry.is_loading = self._store.last_number > 0
        return notes

    def start(self) -> None:
        self._began = self._now()
        self._store.load(self._take_in, self._end)

    def _take_in(self, batch: list[StoredJob]) -> None:
        broker, now, nobody = self._runner.broker, self._now(), self._nobody
        for kept in batch:
            namesake = broker.jobs.get(kept.id)
            if namesake is not None:  # a call that came before it with the same id: the diary's was first
                broker.withdraw(namesake, now, "another job has its id")
            restore(broker, kept, now, nobody)
        self._jobs += len(batch)
        self._runner.run_once()

    def _end(self) -> None:
        broker = self._runner.broker
        broker.job_registry.is_loading = False
        broker.counters.late_results += broker.job_registry.early.clear()
        self._finished(self._jobs, self._now() - self._began)
