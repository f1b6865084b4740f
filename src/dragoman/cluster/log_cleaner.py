"""Cleans the log of an owned shard: writes all rows again that are still true, and purges everything before them.

    1  the claim is renewed; its place is the mark
    2  each job that is there, and each note, is written again behind the mark, some in each iteration; payloads and
       results that are only in the log are read first. Jobs that have ended are written without their payload
    3  when all of it is saved, the mark is noted, and then the log is purged up to it (R116)

Normal commits go on meanwhile. A broker that dies in between leaves rows twice, which read as one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from dragoman.cluster.jetstream import ApiError
from dragoman.cluster.log import LogPhase, ShardLog
from dragoman.cluster.log_beginnings import BEGINNING
from dragoman.cluster.shard_rows import BatchWriter
from dragoman.cluster.store import Places, ShardStore
from dragoman.core.broker import Broker
from dragoman.core.failure import Failure, pack_failure
from dragoman.core.infinity import inf
from dragoman.core.model import ABSENT, Job, JobId, Payload
from dragoman.core.states import ENDED

JOBS_AT_ONCE: Final = 100  # in one batch
BYTES_AT_ONCE: Final = 256 * 1024
MOST_UNSAVED: Final = 4  # batches on their way
AGAIN_AFTER: Final = 30.0  # seconds after a purge that was refused


class LogCleaner:
    """Cleans one log, once. `is_over`: it is clean, or the shard was lost."""

    def __init__(self, shard: int, log: ShardLog, broker: Broker, store: ShardStore, now: float) -> None:
        self.is_over = False
        self.written = 0  # bytes
        self._shard = shard
        self._log = log
        self._broker = broker
        self._store = store
        self._is_marked = False
        self._is_noted = False
        self._is_purging = False
        self._purge_at = -inf
        self._jobs: deque[JobId] = deque()
        self._unsaved: dict[int, list[tuple[JobId, bool, bool]]] = {}  # by ticket: jobs whose payload or result it has
        self._fetching = 0
        log.renew(now)

    # ---------------------------------------------------------------- calls of the keeper

    def marked(self, now: float) -> None:
        """The renewed claim is in the log."""
        if self._is_marked:
            return
        self._is_marked = True
        shard_of = self._store.shard_of
        jobs = self._broker.jobs.values()
        self._jobs.extend([job.id for job in jobs if job.options.durable and shard_of(job.id) == self._shard])
        writer = BatchWriter(self._store.encoder, now)
        for key, value in self._store.notes.get(self._shard, {}).items():
            writer.add_note(key, value)
        self._add(writer, [], now)

    def saved(self, ticket: int, first: int, last: int) -> None:
        """A batch is in the log."""
        for id, has_payload, has_result in self._unsaved.pop(ticket, ()):
            known = self._store.places.get(id)
            if known is not None:
                payload, payload_of = ((first, last), bytes(id)) if has_payload else (known.payload, known.payload_of)
                self._store.places[id] = Places(payload, payload_of, (first, last) if has_result else known.result)

    def tick(self, now: float) -> float:
        """Go on. Returns the time of the next call."""
        if self._log.phase is not LogPhase.OWNED:
            self.is_over = True
        if self.is_over or not self._is_marked:
            return inf
        while self._jobs and len(self._unsaved) < MOST_UNSAVED and not self._fetching:
            self._write_some(now)
        if self._jobs or self._unsaved or self._fetching:
            return now + 0.01
        if not self._is_noted:
            self._is_noted = True
            self._note_mark(now)
            return now + 0.01
        if not self._is_purging and now >= self._purge_at and not self._store.is_fetching(self._shard):
            self._is_purging = True
            self._log.purge(self._purged, now)
        return self._purge_at if not self._is_purging else inf

    def _note_mark(self, now: float) -> None:
        """Note that everything before the mark is written again, so that its absence is no loss."""
        mark = str(self._log.epoch)
        self._store.notes[self._shard][BEGINNING] = mark
        writer = BatchWriter(self._store.encoder, now)
        writer.add_note(BEGINNING, mark)
        self._add(writer, [], now)

    def _purged(self, answer: int | ApiError, now: float) -> None:
        self._is_purging = False
        if isinstance(answer, ApiError):
            self._purge_at = now + AGAIN_AFTER
        else:
            self.is_over = True

    # ---------------------------------------------------------------- rows

    def _write_some(self, now: float) -> None:
        writer = BatchWriter(self._store.encoder, now)
        size = 0
        for _ in range(JOBS_AT_ONCE):
            if not self._jobs or size > BYTES_AT_ONCE:
                break
            job = self._broker.jobs.get(self._jobs[0])
            if job is not None and job.options.durable:
                if self._is_absent(job):
                    if size:
                        break  # what is collected is written first
                    self._fetch(job)
                    return
                self._write(job, writer, None, None)
                size += len(job.payload) + len(job.result) + 200
            self._jobs.popleft()
        self._add(writer, [], now)

    def _is_absent(self, job: Job) -> bool:
        places = self._store.places.get(job.id)
        if places is None:
            return False
        needs_payload = job.payload is ABSENT and (job.state is not ENDED or job.quarantined)
        return (needs_payload and places.payload is not None) or (job.result is ABSENT and places.result is not None)

    def _write(self, job: Job, writer: BatchWriter, payload: Payload | None, result: Payload | None) -> None:
        is_over = job.state is ENDED and not job.quarantined
        writer.add_job(job, b"" if is_over or (payload is None and job.payload is ABSENT) else payload)
        writer.add_status(job, self._store.holder(job), result)

    def _fetch(self, job: Job) -> None:
        """Read what is only in the log, and write the job with it."""
        self._fetching += 1

        def fetched(payload: Payload, result: Payload, failure: Failure | None) -> None:
            self._fetching -= 1
            if self._log.phase is not LogPhase.OWNED or not self._jobs or self._jobs[0] != job.id:
                return
            self._jobs.popleft()
            if self._broker.jobs.get(job.id) is not job:
                return
            now = self._store.now()
            writer = BatchWriter(self._store.encoder, now)
            has_payload, has_result = job.payload is ABSENT, job.result is ABSENT
            stored = result if failure is None else pack_failure(failure)
            self._write(job, writer, payload if has_payload else None, stored if has_result else None)
            self._add(writer, [(job.id, has_payload, has_result and bool(stored))], now)

        self._store.fetch(job, fetched)

    def _add(self, writer: BatchWriter, placed: list[tuple[JobId, bool, bool]], now: float) -> None:
        batch = writer.encode()
        self.written += len(batch)
        self._unsaved[self._store.next_ticket] = placed
        self._store.add(self._shard, batch, now)
