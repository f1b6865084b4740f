"""The store in an SQLite file.

The thread of the event loop converts jobs to rows and queues them. A second thread owns the one connection: it writes
everything that is queued in one commit, and then calls back on the loop. The loop never waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.model import Job, Payload
from dragoman.core.restore import StoredJob
from dragoman.core.store_entries import DeleteJob, StoreJob, StoreValue
from dragoman.store import statements
from dragoman.store.ballast import Ballast
from dragoman.store.errors import FULL, InvalidRow, StoreError, temporary_error
from dragoman.store.file_names import NAME
from dragoman.store.limits import StoreLimits
from dragoman.store.losses import after_opening, before_opening, has_leftovers
from dragoman.store.rows import RowEncoder, read_result
from dragoman.store.schema import OWN_NOTES, bring_up_to_date, check_file, damaged, open_file, within
from dragoman.store.sealing import Progress, seal_all
from dragoman.store.writer import CloseRequest, FetchRequest, LoadRequest, Writer, WriteRequest

DEFAULT_LIMITS: Final = StoreLimits()


class SqliteStore:
    """The store of a folder. Raises StoreError if it cannot be used. `post` runs a callable on the loop's thread;
    `wall_offset` returns the difference between the wall clock and the broker's; `progress` receives the progress of an
    upgrade."""

    def __init__(
        self,
        folder: Path,
        post: Callable[[Callable[[], None]], object],
        wall_offset: Callable[[], float],
        limits: StoreLimits = DEFAULT_LIMITS,
        *,
        author: str = "",
        vfs: str | None = None,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self.path = folder / NAME
        self._wall_offset = wall_offset
        self._encoder = RowEncoder()
        if (loss := before_opening(folder)) is not None:
            raise loss.error(self.path)
        connection = open_file(self.path, vfs)
        try:
            if (loss := after_opening(connection, folder)) is not None:
                raise loss.error(self.path)
            is_checked = self._check(connection, limits.check_budget)
            ballast = Ballast(folder, limits.ballast)
            self._bring_up_to_date(connection, author, ballast, progress)
            self._notes = {key: value for key, value in statements.read_notes(connection) if key not in OWN_NOTES}
            ballast.make()
            connection.pragma("journal_size_limit", limits.max_wal)
            self._writer = Writer(connection, ballast, post, wall_offset, limits, author, is_checked, folder, vfs)
            if has_leftovers(connection, self.path):
                self._writer.merge_log()  # otherwise they would look like damage behind the next commit
            if ballast.is_missed:
                self._writer.problem = FULL  # until there is room for the ballast file again
            self.last_number = statements.last_number(connection)
        except BaseException as error:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # a rejected file is not changed
            connection.close()
            if isinstance(error, apsw.CorruptError | apsw.NotADBError):
                raise damaged(self.path, str(error)) from error
            if isinstance(error, apsw.Error):
                raise StoreError(f"{self.path} cannot be used: {error}") from error
            if isinstance(error, UnicodeDecodeError):
                raise damaged(self.path, f"a value has invalid text: {error.reason}") from error
            if isinstance(error, InvalidRow):
                raise damaged(self.path, str(error)) from error
            raise
        self._writer.thread.start()

    def _check(self, connection: apsw.Connection, budget: float) -> bool:
        """Check the file (R109). False: it takes too long, and is postponed."""
        if budget <= 0.0:
            return False
        try:
            found = check_file(connection, within(budget))
        except (apsw.CorruptError, apsw.NotADBError) as error:
            found = str(error)
        if found:
            raise damaged(self.path, found)
        return found is not None

    def _bring_up_to_date(self, connection: apsw.Connection, author: str, ballast: Ballast, progress: Progress) -> None:
        """Upgrade the file. On a full disk, release the ballast file and retry (R101)."""
        try:
            bring_up_to_date(connection, author)
            seal_all(connection, progress)
        except apsw.Error as error:
            if temporary_error(error, connection.system_errno) != FULL:
                raise
            ballast.drop()
            bring_up_to_date(connection, author)
            seal_all(connection, progress)

    # ---------------------------------------------------------------- for the runner

    def apply(self, entries: list[StoreJob | StoreValue | DeleteJob], done: Callable[[int, str | None], None]) -> None:
        encoder, offset = self._encoder, self._wall_offset()
        written = WriteRequest(done)
        for entry in entries:
            if type(entry) is StoreJob:
                job = entry.job
                written.last = entry.number
                if entry.number == job.number:
                    written.jobs.append(encoder.job_row(job, offset))
                    written.size += len(job.payload)
                else:
                    if entry.rewrites:
                        written.heads.append((job.number, encoder.head(job, offset)))
                    if entry.has_new_payload:
                        written.payloads.append((job.number, job.payload))
                        written.size += len(job.payload)
                    written.statuses.append((job.number, encoder.status_row(job, offset)))
                    written.size += len(job.result) if job.failure is None else job.failure.size
            elif type(entry) is StoreValue:
                written.last = entry.number
                written.notes.append((entry.key, entry.value))
            else:
                assert type(entry) is DeleteJob
                if entry.number:
                    written.last = entry.number
                written.erased.append(encoder.erased(entry.job))
        self._writer.queue.put(written)

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        def fetched(payload: Payload, stored: Payload) -> None:
            done(payload, *read_result(job, stored))

        self._writer.queue.put(FetchRequest(job.number, fetched))

    def close(self) -> str | None:
        """Commit everything that was requested, and end the thread. Returns the reason if not all of it was written."""
        self._writer.queue.put(CloseRequest())
        self._writer.thread.join()
        return self._writer.problem if self._writer.unwritten else None

    # ---------------------------------------------------------------- at the start

    def notes(self) -> dict[str, str]:
        """Return the values that an earlier run stored."""
        return dict(self._notes)

    def load(self, deliver: Callable[[list[StoredJob]], None], finished: Callable[[], None]) -> None:
        """Load all jobs of earlier runs, in batches, while everything else continues."""
        quarantined = self._encoder.quarantined

        def note_quarantined(batch: list[StoredJob]) -> None:
            quarantined.update((kept.id, kept.number) for kept in batch if kept.quarantined)
            deliver(batch)

        self._writer.queue.put(LoadRequest(note_quarantined, finished))

    # ---------------------------------------------------------------- state

    @property
    def problem(self) -> str | None:
        """The reason why new jobs cannot be written now."""
        return self._writer.problem

    @property
    def commits(self) -> Histogram:
        """Duration of commits, in seconds."""
        return self._writer.commits

    def when_lost(self, call: Callable[[str], None]) -> None:
        """Call back with an error message when the files are gone from the folder (R130)."""
        self._writer.lost = call

    @property
    def failed(self) -> Callable[[str], None]:
        """Called once, with an error message, when nothing can be written any more."""
        return self._writer.failed

    @failed.setter
    def failed(self, call: Callable[[str], None]) -> None:
        self._writer.failed = call
