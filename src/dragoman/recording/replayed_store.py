"""The store of a replay: it completes as recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dragoman.core.extras_text import extras_of
from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.model import Job, Payload
from dragoman.core.options import options_from
from dragoman.core.restore import StoredJob
from dragoman.core.states import AttemptRecord, Outcome
from dragoman.core.store_entries import StoreEntry
from dragoman.recording.item_reader import ItemReader
from dragoman.recording.items import APPLIED, APPLY, FETCH, FETCHED, PROBLEM
from dragoman.recording.recorded_store import STORED_FIELDS

Fetched = Callable[[Payload, Payload, Failure | None], None]


class ReplayedStore:
    """`digests`: those of payloads that were stored before the recording, by their recorded form."""

    def __init__(self, reader: ItemReader, digests: Mapping[bytes, bytes]) -> None:
        self.commits = Histogram()
        self.last_number = 0
        self.stored_notes: dict[str, str] = {}
        self.finished: Callable[[], None] = lambda: None
        self._reader = reader
        self._digests = digests
        self._fetches: dict[int, Fetched] = {}
        self._deliver: Callable[[list[StoredJob]], None] = lambda batch: None

    def apply(self, entries: list[StoreEntry], done: Callable[[int, str | None], None]) -> None:
        self._reader.expect(APPLY, len(entries))
        self._reader.until(APPLIED)

    def fetch(self, job: Job, done: Fetched) -> None:
        [number] = self._reader.expect(FETCH)
        self._fetches[number] = done
        ahead = self._reader.peek()
        if ahead is not None and ahead[:2] == (FETCHED, number) and ahead[-1]:  # the store had it at once
            self._reader.handle(self._reader.next())

    def fetched(self, number: int, payload: bytes, result: bytes, failure: Any, is_at_once: bool) -> None:
        """Handle the end of a fetch."""
        self._fetches.pop(number)(payload, result, Failure(*failure) if failure is not None else None)

    @property
    def problem(self) -> str | None:
        [problem] = self._reader.expect(PROBLEM)
        return None if problem is None else str(problem)

    def notes(self) -> dict[str, str]:
        return self.stored_notes

    def load(self, deliver: Callable[[list[StoredJob]], None], finished: Callable[[], None]) -> None:
        self._deliver, self.finished = deliver, finished

    def loaded(self, batch: list[dict[str, Any]]) -> None:
        """Restore a batch of jobs of an earlier run."""
        self._deliver([self._job_of(facts) for facts in batch])

    def _job_of(self, facts: dict[str, Any]) -> StoredJob:
        options = options_from(facts["options"])
        kept = StoredJob(facts["number"], facts["id"], facts["service"], options, facts["created"])
        for name in STORED_FIELDS:
            if name not in ("options", "extras"):
                setattr(kept, name, facts[name])
        kept.extras = extras_of(facts["extras"]) if facts["extras"] is not None else None
        kept.digest = self._digests.get(kept.digest, kept.digest)
        kept.outcome = Outcome(facts["outcome"]) if facts["outcome"] is not None else None
        if facts["history"] is not None:
            kept.history = [
                AttemptRecord(number, worker, Outcome(outcome), reason, *known)
                for number, worker, outcome, reason, *known in facts["history"]
            ]
        return kept

    def close(self) -> str | None:
        return None
