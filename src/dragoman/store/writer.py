"""The thread that owns the store's file: everything that is queued while it writes is its next commit.

Acknowledged means committed (R103). A disk error that may end by itself lets new jobs be refused, and everything else
is kept until it can be written (R101). After any other error nothing is acknowledged any more, and the process stops
(R104).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, perf_counter, time
from typing import Final, cast

import apsw

from dragoman.core.histogram import Histogram
from dragoman.core.model import Payload
from dragoman.core.remembered import CLIENT
from dragoman.core.restore import StoredJob
from dragoman.store import statements
from dragoman.store.ballast import Ballast
from dragoman.store.commit import Commit
from dragoman.store.counter import Count, Counter
from dragoman.store.errors import describe, temporary_error
from dragoman.store.file_names import NAME
from dragoman.store.large_payloads import LargePayloads
from dragoman.store.limits import StoreLimits
from dragoman.store.loader import Loader
from dragoman.store.log import size_of_log
from dragoman.store.log_room import LogRoom
from dragoman.store.presence import Presence, cut
from dragoman.store.rows import Row
from dragoman.store.schema import AUTHOR, COMMITS, check_file

Call = Callable[[], None]
SIZE_CHECK_BYTES: Final = 4 << 20  # bytes written between two checks of the file's size
VACUUM_PAGES: Final = 256  # freed in one idle iteration
IDLE_PAGES: Final = 256  # a log of this length is merged when the store is idle


class WriteRequest:
    """The changes of one `apply`."""

    __slots__ = ("done", "erased", "heads", "jobs", "last", "notes", "payloads", "size", "statuses")

    def __init__(self, done: Callable[[int, str | None], None]) -> None:
        self.done = done
        self.last = 0
        self.size = 0  # bytes, approximately
        self.jobs: list[Row] = []
        self.heads: list[tuple[int, Row]] = []
        self.payloads: list[tuple[int, Payload]] = []
        self.statuses: list[tuple[int, Row]] = []
        self.notes: list[tuple[str, str | None]] = []
        self.erased: list[int] = []

    def __len__(self) -> int:
        return len(self.jobs) + len(self.statuses) + len(self.notes) + len(self.erased)


class FetchRequest:
    """Loads a job's payload and result."""

    __slots__ = ("done", "number")

    def __init__(self, number: int, done: Callable[[Payload, Payload], None]) -> None:
        self.number = number
        self.done = done


class LoadRequest:
    """Loads all jobs of earlier runs."""

    __slots__ = ("deliver", "finished")

    def __init__(self, deliver: Callable[[list[StoredJob]], None], finished: Call) -> None:
        self.deliver = deliver
        self.finished = finished


class BatchConsumed:
    """The loop has consumed a batch of jobs."""


class CloseRequest:
    """Ends the thread."""


Item = WriteRequest | FetchRequest | LoadRequest | BatchConsumed | CloseRequest


class Writer:
    """Owns the connection to the file, in a thread of its own."""

    def __init__(
        self,
        connection: apsw.Connection,
        ballast: Ballast,
        post: Callable[[Call], object],
        wall_offset: Callable[[], float],
        limits: StoreLimits,
        author: str,
        is_checked: bool,
        folder: Path,
        vfs: str | None,
    ) -> None:
        self.queue: SimpleQueue[Item] = SimpleQueue()
        self.problem: str | None = None
        self.unwritten = 0  # changes that could not be written until the end
        self.commits = Histogram()
        self.failed: Callable[[str], None] = lambda message: None
        self.lost: Callable[[str], None] = lambda message: None
        self._connection = connection
        self._ballast = ballast
        self._post = post
        self._limits = limits
        self._author = author
        self._count = Count.of(statements.read_note(connection, COMMITS))
        self._counter = Counter(folder, self._count)
        self._presence = Presence(folder / NAME, folder / f"{NAME}-wal")
        self._log = str(folder / f"{NAME}-wal")
        self._cut: str | None = None  # an error message, once the log was found to be truncated
        self._loader = Loader(connection, wall_offset, limits.load_batch)
        self._is_closing = False
        self._is_stuck = False  # not even changes of accepted jobs can be written
        self._is_lost = False  # the open files are not in the folder any more (R130)
        self._backlog = Commit()
        self._unsafe: WriteRequest | None = None  # the last request that got an error
        self._waiting_for_check: dict[int, None] | None = None if is_checked else {}  # jobs to delete after it
        self._check_until = monotonic() + limits.check_delay
        self._next_check = monotonic() + limits.retry
        self._unchecked_bytes = 0  # bytes written since the last check of the file's size
        self._has_free_pages = False
        self._large = LargePayloads(statements.last_number(connection))
        self._log_pages = 0
        connection.set_wal_hook(self._note_log)
        self._page_bytes: int = connection.pragma("page_size")
        self._room = LogRoom(folder / f"{NAME}-wal", vfs, self._page_bytes, limits.busy_wal)
        self._check_size()
        self.thread = Thread(target=self._run, name="store", daemon=True)

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._run_once()
            self._finish()
        except BaseException as error:
            self._fail(error)
        finally:
            self._connection.close()
            self._counter.close()

    def _run_once(self) -> None:
        items = self._take()
        callbacks: list[Call] = []
        # Requested bodies were written long ago, and the next commit may delete them.
        callbacks += [self._fetch(item) for item in items if type(item) is FetchRequest]
        entries = [item for item in items if type(item) is WriteRequest]
        if entries:
            self._write(entries, callbacks)
        for item in items:
            if type(item) is LoadRequest:
                self._loader.begin(item.deliver, item.finished)
            elif type(item) is BatchConsumed:
                self._loader.is_taken()
            elif type(item) is CloseRequest:
                self._is_closing = True
        if callbacks:
            self._post(callbacks[0] if len(callbacks) == 1 else lambda: _call_all(callbacks))
        self._counter.note(self._count)  # it may be behind, so no request waits for it
        if self._loader.is_due:
            self._load_more()
        self._tidy(is_idle=not items and not self._loader.is_loading)

    def _take(self) -> list[Item]:
        """Return the queued requests; wait for one if there is nothing else to do."""
        queue, limits = self.queue, self._limits
        try:
            item = queue.get_nowait() if self._loader.is_due else queue.get(timeout=self._wait_time())
        except Empty:
            return []
        items = [item]
        count, size = _weight(item)
        while count < limits.max_group and size < limits.max_group_bytes and type(item) is not CloseRequest:
            try:
                item = queue.get_nowait()
            except Empty:
                break
            items.append(item)
            more, bytes = _weight(item)
            count += more
            size += bytes
        return items

    def _wait_time(self) -> float:
        """Return the seconds to wait for a request before postponed work is done."""
        return self._limits.idle if self._has_postponed_work() else self._limits.retry

    def _finish(self) -> None:
        """Write what is left, before the thread ends."""
        self._is_stuck = False
        self._flush_backlog()
        self._check_files()
        self.unwritten = len(self._backlog) or int(self._is_lost)
        self._counter.note(self._count)
        if self._is_lost or self._is_stuck or not self.merge_log():
            self._leave_log()

    def merge_log(self) -> bool:
        """Merge the log into the file, and empty it. In between the file `commits` marks that the log is not needed."""
        return self._checkpoint("FULL") and self._counter.note_clean(self._count) and self._checkpoint("TRUNCATE")

    def _leave_log(self) -> None:
        """Keep the log for the next start: closing must not merge it."""
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def _fail(self, error: BaseException) -> None:
        """Stop after an error (R104): nothing is acknowledged or written any more."""
        message = self.problem = describe(error)
        self._leave_log()
        self._post(lambda: self.failed(message))

    # ---------------------------------------------------------------- writing

    def _write(self, entries: list[WriteRequest], callbacks: list[Call]) -> None:
        group = _group(entries)
        if self._waiting_for_check is not None:
            self._waiting_for_check |= group.erased
            group.erased = {}
        self._cut = self._cut or cut(self._log, size_of_log(self._log_pages, self._page_bytes))
        if self._cut is not None:
            self._check_files()
        problem = self.problem
        if problem is None and (problem := self._try(group)) is not None:
            self._set_problem(problem)
        if problem is None:
            self._unchecked_bytes += sum(each.size for each in entries)
            if self._unchecked_bytes >= SIZE_CHECK_BYTES:
                self._check_size()
        else:
            for each in entries:
                if each.jobs:  # they are refused, so it must not be remembered that they were accepted
                    group.forget([key for key, _ in each.notes if key.startswith(CLIENT)])
            self._backlog.merge(group)
            self._flush_backlog()
        if self._check_files():
            if problem is None:
                self._delete_refused(group)
            problem = self.problem
        for each in entries:
            if not each.last:
                continue  # no caller waits for a delete
            if problem is not None and (each.jobs or self._is_stuck or self._is_lost):
                callbacks.append(_call_done(each, problem))
                self._unsafe = each
            else:
                callbacks.append(_call_done(each, None))

    def _check_files(self) -> bool:
        """True if the open files are gone from the folder (R130). They are the last copy, so they stay open, and
        changes of accepted jobs are still written to them; but nothing is acknowledged any more."""
        gone = self._cut or self._presence.missing_file()
        if gone is None:
            self._is_lost = False
            return False
        if not self._is_lost:
            self._is_lost = True
            message = self.problem = gone
            self._next_check = monotonic() + self._limits.retry
            self._post(lambda: self.lost(message))
        return True

    def _delete_refused(self, group: Commit) -> None:
        """Delete the jobs of a commit that are refused now: they must not be in a rescued copy of the files."""
        for row in group.jobs:
            self._backlog.add_erased(cast(int, row[0]))
        self._flush_backlog()

    def _try(self, group: Commit) -> str | None:
        """Write a commit. Returns the reason if that is not possible now."""
        start = perf_counter()
        connection = self._connection
        dropped = self._large.dropped_by(group)
        try:
            count = self._count.next(len(group.jobs), time())
            connection.execute("BEGIN IMMEDIATE")
            statements.write(connection, group, dropped)
            statements.write_note(connection, COMMITS, count.text)
            connection.execute("COMMIT")
        except apsw.Error as error:
            problem = temporary_error(error, connection.system_errno)
            if problem is None:
                raise
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return problem
        self._count = count
        self._large.forget(group, dropped)
        self.commits.observe(perf_counter() - start)
        return None

    def _set_problem(self, problem: str) -> None:
        """Refuse new jobs from now on, and release the ballast file for changes of accepted jobs."""
        self.problem = problem
        self._is_stuck = False
        if not self._is_lost:
            self._ballast.drop()
        self._next_check = monotonic() + self._limits.retry

    def _flush_backlog(self) -> None:
        if self._is_stuck:
            return  # until the next check
        problem = self._try(self._backlog) if len(self._backlog) else None
        if problem is None:
            self._backlog = Commit()
            return
        if self.problem is None:
            self._set_problem(problem)
        self._is_stuck = True

    def _check_size(self) -> None:
        """Check the size of the file (L21)."""
        self._unchecked_bytes = 0
        if statements.used_bytes(self._connection) >= self._limits.max_store_size:
            self.problem = f"the store takes {self._limits.max_store_size} bytes, the maximum (max_store_size)"

    def _check_again(self) -> None:
        """Check whether the file can be written again, with room for the ballast file."""
        self._next_check = monotonic() + self._limits.retry
        self._check_files()
        if self.problem is None:
            self._ballast.make()
            self._check_size()
            return
        self._backlog.notes[AUTHOR] = self._author  # a change to try with
        self._is_stuck = False
        self._flush_backlog()
        if self._is_lost or self._is_stuck or statements.used_bytes(self._connection) >= self._limits.max_store_size:
            return
        if self._ballast.make():
            self.problem = None

    # ---------------------------------------------------------------- reading

    def _fetch(self, item: FetchRequest) -> Call:
        payload, result = statements.read_bodies(self._connection, item.number)
        done = item.done
        return lambda: done(payload, result)

    def _load_more(self) -> None:
        batch = self._loader.next_batch()
        deliver, finished, queue = self._loader.deliver, self._loader.finished, self.queue

        def deliver_batch() -> None:
            if batch:
                deliver(batch)
                queue.put(BatchConsumed())
            else:
                finished()

        self._post(deliver_batch)

    # ---------------------------------------------------------------- postponed work

    def _has_postponed_work(self) -> bool:
        return self._log_pages >= IDLE_PAGES or self._waiting_for_check is not None or self._has_free_pages

    def _tidy(self, is_idle: bool) -> None:
        if monotonic() >= self._next_check:
            self._check_again()
        if self._is_stuck or self._is_lost:
            return
        if self._unsafe is not None and not len(self._backlog):
            self._post(_call_done(self._unsafe, None))  # attempts wait for that: they are on disk now (R108)
            self._unsafe = None
        log_bytes = self._log_pages * self._page_bytes
        if log_bytes >= self._limits.busy_wal or (is_idle and self._log_pages):
            self._checkpoint("PASSIVE")
        elif self._log_pages and self.problem is None:
            self._room.keep_ahead(self._log_pages)
        if is_idle and self._waiting_for_check is not None:
            self._check()
        elif is_idle:
            self._vacuum()

    def _checkpoint(self, mode: str) -> bool:
        """Merge the log into the file. If there is no room for that, the log grows for a while."""
        if self._run_statement(f"PRAGMA wal_checkpoint({mode})"):
            self._log_pages = 0
            return True
        return False

    def _vacuum(self) -> None:
        self._has_free_pages = self._connection.pragma("freelist_count") > VACUUM_PAGES
        if self._has_free_pages:
            self._run_statement(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")

    def _run_statement(self, statement: str) -> bool:
        try:
            self._connection.execute(statement).fetchall()
        except apsw.Error as error:
            problem = temporary_error(error, self._connection.system_errno)
            if problem is None:
                raise
            self._set_problem(problem)
            return False
        return True

    def _check(self) -> None:
        """Do the check that was postponed at the start, until the next request (R109)."""
        found = check_file(self._connection, lambda: not self.queue.empty())
        if found:
            raise apsw.CorruptError(found)
        if found is not None or monotonic() > self._check_until:
            assert self._waiting_for_check is not None
            for number in self._waiting_for_check:
                self._backlog.add_erased(number)
            self._waiting_for_check = None
            self._flush_backlog()

    def _note_log(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK


def _group(entries: list[WriteRequest]) -> Commit:
    group = Commit()
    for each in entries:
        group.jobs += each.jobs
        group.heads.update(each.heads)
        group.payloads.update(each.payloads)
        group.statuses.update(each.statuses)
        group.notes.update(each.notes)
        for number in each.erased:
            group.add_erased(number)
    return group


def _weight(item: Item) -> tuple[int, int]:
    return (len(item), item.size) if type(item) is WriteRequest else (1, 0)


def _call_done(entries: WriteRequest, problem: str | None) -> Call:
    return lambda: entries.done(entries.last, problem)


def _call_all(callbacks: list[Call]) -> None:
    for call in callbacks:
        call()
