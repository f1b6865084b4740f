"""The store of a broker that is recorded: commits, loaded payloads and restored jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from dragoman.core.extras_text import extras_text
from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.model import Job, Payload
from dragoman.core.restore import StoredJob
from dragoman.core.states import AttemptRecord
from dragoman.core.store_entries import StoreEntry
from dragoman.recording.items import ALL_LOADED, APPLIED, APPLY, FETCH, FETCHED, LOADED, PROBLEM, SAVED
from dragoman.recording.recorded_streams import Items

# Fields of StoredJob; a compiled class does not name them.
STORED_FIELDS: Final = (
    "attempt",
    "caller",
    "can_resume",
    "created",
    "deaths",
    "delayed_since",
    "digest",
    "ended",
    "extras",
    "given",
    "history",
    "id",
    "is_elsewhere",
    "keep_until",
    "key",
    "number",
    "options",
    "outcome",
    "owner",
    "quarantined",
    "reason",
    "retry_of",
    "service",
    "spent",
    "start_at",
    "token",
    "worker",
    "worker_dialect",
    "worker_id",
)


class RecordedStore:
    """Passes everything to the real store, and records its answers."""

    def __init__(self, items: Items, inner: Any) -> None:
        self._items = items
        self._inner = inner
        self._fetches = 0
        self._fetching = 0  # number of the fetch that is being requested

    def apply(self, entries: list[StoreEntry], done: Callable[[int, str | None], None]) -> None:
        self._items.add(APPLY, len(entries))
        self._inner.apply(entries, partial(self._saved, done))
        self._items.add(APPLIED)

    def _saved(self, done: Callable[[int, str | None], None], number: int, problem: str | None) -> None:
        self._items.add(SAVED, number, problem)
        done(number, problem)

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        self._fetches = self._fetching = number = self._fetches + 1
        self._items.add(FETCH, number)
        self._inner.fetch(job, partial(self._fetched, number, done))
        self._fetching = 0

    def _fetched(
        self,
        number: int,
        done: Callable[[Payload, Payload, Failure | None], None],
        payload: Payload,
        result: Payload,
        failure: Failure | None,
    ) -> None:
        hide = self._items.hide
        is_at_once = number == self._fetching
        self._items.add(FETCHED, number, hide(payload), hide(result), hide.failure(failure), is_at_once)
        done(payload, result, failure)

    def load(self, deliver: Callable[[list[StoredJob]], None], finished: Callable[[], None]) -> None:
        def loaded(batch: list[StoredJob]) -> None:
            self._items.add(LOADED, [self._facts(job) for job in batch])
            deliver(batch)

        def all_loaded() -> None:
            self._items.add(ALL_LOADED)
            finished()

        self._inner.load(loaded, all_loaded)

    def _facts(self, kept: StoredJob) -> dict[str, Any]:
        facts = {name: getattr(kept, name) for name in STORED_FIELDS}
        facts["options"] = asdict(kept.options)
        facts["extras"] = extras_text(kept.extras) if kept.extras is not None else None
        facts["digest"] = self._items.hide.stored_digest(kept.digest)
        facts["reason"] = self._items.hide.text(kept.reason)
        if kept.history is not None:
            facts["history"] = [self._attempt(each) for each in kept.history]
        return facts

    def _attempt(self, record: AttemptRecord) -> tuple[Any, ...]:
        reason = self._items.hide.text(record.reason)
        worker = record.dialect, record.worker_id
        return record.number, record.worker, record.outcome, reason, record.started, record.ended, *worker

    @property
    def last_number(self) -> int:
        number: int = self._inner.last_number
        return number

    def notes(self) -> dict[str, str]:
        notes: dict[str, str] = self._inner.notes()
        return notes

    @property
    def problem(self) -> str | None:
        problem: str | None = self._inner.problem
        self._items.add(PROBLEM, problem)
        return problem

    @property
    def commits(self) -> Histogram:
        commits: Histogram = self._inner.commits
        return commits

    def close(self) -> str | None:
        problem: str | None = self._inner.close()
        return problem
