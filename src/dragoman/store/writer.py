"""The thread that owns the diary's file: whatever has queued up while it wrote is its next commit.

Acknowledged means committed (R103). What is wrong with the disk decides what happens then: if it may pass, new jobs are
refused and everything else is kept until it can be written (R101); if not, nothing is acknowledged any more and the
process shall end (R104).
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
LOOK_BYTES: Final = 4 << 20  # so much is written before we look at the file's size again
VACUUM_PAGES: Final = 256  # given back to the system in one idle turn
IDLE_PAGES: Final = 256  # so long a log is worth the while to carry over, once nobody waits


class WriteRequest:
    """What one `apply` wants to be written."""

    __slots__ = ("done", "erased", "fates", "heads", "jobs", "last", "notes", "size")

    def __init__(self, done: Callable[[int, str | None], None]) -> None:
        self.done = done
        self.last = 0
        self.size = 0  # bytes, roughly
        self.jobs: list[Row] = []
        self.heads: list[tuple[int, Row]] = []
        self.fates: list[tuple[int, Row]] = []
        self.notes: list[tuple[str, str | None]] = []
        self.erased: list[int] = []

    def __len__(self) -> int:
        return len(self.jobs) + len(self.fates) + len(self.notes) + len(self.erased)


class FetchRequest:
    __slots__ = ("done", "number")

    def __init__(self, number: int, done: Callable[[Payload, Payload], None]) -> None:
        self.number = number
        self.done = done


class LoadRequest:
    __slots__ = ("deliver", "finished")

    def __init__(self, deliver: Callable[[list[StoredJob]], None], finished: Call) -> None:
        self.deliver = deliver
        self.finished = finished


class BatchConsumed:
    """The loop has taken a batch of jobs in."""


class CloseRequest:
    pass


Item = WriteRequest | FetchRequest | LoadRequest | BatchConsumed | CloseRequest


class Writer:
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
        self.unwritten = 0  # changes that could not be written down to the end
        self.commits = Histogram()
        self.failed: Callable[[str], None] = lambda sentence: None
        self.lost: Callable[[str], None] = lambda sentence: None
        self._connection = connection
        self._ballast = ballast
        self._post = post
        self._limits = limits
        self._author = author
        self._count = Count.of(statements.read_note(connection, COMMITS))
        self._counter = Counter(folder, self._count)
        self._presence = Presence(folder / NAME, folder / f"{NAME}-wal")
        self._log = str(folder / f"{NAME}-wal")
        self._cut: str | None = None  # a sentence, once the log was found to be shorter than it was
        self._loader = Loader(connection, wall_offset, limits.load_batch)
        self._is_closing = False
        self._is_stuck = False  # not even what must not be lost can be written
        self._is_lost = False  # the files that we write to are not in the folder any more (R130)
        self._backlog = Commit()
        self._unsafe: WriteRequest | None = None  # the last that a problem was reported for
        self._waiting_for_check: dict[int, None] | None = None if is_checked else {}  # jobs to be erased after it
        self._check_until = monotonic() + limits.check_patience
        self._look_at = monotonic() + limits.retry
        self._unlooked = 0  # bytes written since we looked at the file's size
        self._has_free_pages = False
        self._large = LargePayloads(statements.last_number(connection))
        self._log_pages = 0
        connection.set_wal_hook(self._note_log)
        self._page_bytes: int = connection.pragma("page_size")
        self._room = LogRoom(folder / f"{NAME}-wal", vfs, self._page_bytes, limits.busy_wal)
        self._look_at_size()
        self.thread = Thread(target=self._run, name="diary", daemon=True)

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._turn()
            self._finish()
        except BaseException as error:
            self._fail(error)
        finally:
            self._connection.close()
            self._counter.close()

    def _turn(self) -> None:
        items = self._take()
        told: list[Call] = []
        # Bodies that are asked for were written long ago, and what is written now may erase them.
        told += [self._fetch(item) for item in items if type(item) is FetchRequest]
        entries = [item for item in items if type(item) is WriteRequest]
        if entries:
            self._write(entries, told)
        for item in items:
            if type(item) is LoadRequest:
                self._loader.begin(item.deliver, item.finished)
            elif type(item) is BatchConsumed:
                self._loader.is_taken()
            elif type(item) is CloseRequest:
                self._is_closing = True
        if told:
            self._post(told[0] if len(told) == 1 else lambda: _tell(told))
        self._counter.note(self._count)  # it may lag, so nobody waits for it
        if self._loader.is_due:
            self._load_more()
        self._tidy(is_idle=not items and not self._loader.is_loading)

    def _take(self) -> list[Item]:
        """What has come meanwhile; or what comes within a moment, if there is nothing else to do."""
        queue, limits = self.queue, self._limits
        try:
            item = queue.get_nowait() if self._loader.is_due else queue.get(timeout=self._patience())
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

    def _patience(self) -> float:
        """How long to wait before we do what can wait."""
        return self._limits.idle if self._has_chores() else self._limits.retry

    def _finish(self) -> None:
        """Told to close: whatever was left undone is tried once more."""
        self._is_stuck = False
        self._flush_backlog()
        self._look_for_files()
        self.unwritten = len(self._backlog) or int(self._is_lost)
        self._counter.note(self._count)
        if self._is_lost or self._is_stuck or not self.merge_log():
            self._leave_log()

    def merge_log(self) -> bool:
        """Carry the log over into the file, and empty it. In between the counter's file says that it is not needed."""
        return self._checkpoint("FULL") and self._counter.note_clean(self._count) and self._checkpoint("TRUNCATE")

    def _leave_log(self) -> None:
        """The next start reads it: closing shall not try to carry it over."""
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def _fail(self, error: BaseException) -> None:
        """R104: nothing is acknowledged any more, and nothing is written: what the disk has is looked at anew."""
        sentence = self.problem = describe(error)
        self._leave_log()
        self._post(lambda: self.failed(sentence))

    # ---------------------------------------------------------------- writing

    def _write(self, entries: list[WriteRequest], told: list[Call]) -> None:
        group = _group(entries)
        if self._waiting_for_check is not None:
            self._waiting_for_check |= group.erased
            group.erased = {}
        self._cut = self._cut or cut(self._log, size_of_log(self._log_pages, self._page_bytes))
        if self._cut is not None:
            self._look_for_files()
        trouble = self.problem
        if trouble is None and (trouble := self._try(group)) is not None:
            self._suffer(trouble)
        if trouble is None:
            self._unlooked += sum(each.size for each in entries)
            if self._unlooked >= LOOK_BYTES:
                self._look_at_size()
        else:
            self._backlog.take_in(group)
            self._flush_backlog()
        if self._look_for_files():
            if trouble is None:
                self._take_back(group)
            trouble = self.problem
        for each in entries:
            if not each.last:
                continue  # nobody waits to hear of an erasure
            if trouble is not None and (each.jobs or self._is_stuck or self._is_lost):
                told.append(_call_done(each, trouble))
                self._unsafe = each
            else:
                told.append(_call_done(each, None))

    def _look_for_files(self) -> bool:
        """R130: whether the files that we write to are gone from the folder. They are the last copy, so we keep them
        open, and write into them whatever happens to jobs that were accepted; but nothing is acknowledged any more."""
        gone = self._cut or self._presence.what_is_gone()
        if gone is None:
            self._is_lost = False
            return False
        if not self._is_lost:
            self._is_lost = True
            sentence = self.problem = gone
            self._look_at = monotonic() + self._limits.retry
            self._post(lambda: self.lost(sentence))
        return True

    def _take_back(self, group: Commit) -> None:
        """Its jobs are refused now: they shall not be in the copy that may be saved of the files."""
        for row in group.jobs:
            self._backlog.add_erased(cast(int, row[0]))
        self._flush_backlog()

    def _try(self, group: Commit) -> str | None:
        """Commit it, or say why that is not possible at the moment."""
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
            trouble = temporary_error(error, connection.system_errno)
            if trouble is None:
                raise
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return trouble
        self._count = count
        self._large.forget(group, dropped)
        self.commits.observe(perf_counter() - start)
        return None

    def _suffer(self, trouble: str) -> None:
        """New jobs are refused from now on; what must not be lost gets the room that was kept back for it."""
        self.problem = trouble
        self._is_stuck = False
        if not self._is_lost:
            self._ballast.drop()
        self._look_at = monotonic() + self._limits.retry

    def _flush_backlog(self) -> None:
        if self._is_stuck:
            return  # until we look again
        trouble = self._try(self._backlog) if len(self._backlog) else None
        if trouble is None:
            self._backlog = Commit()
            return
        if self.problem is None:
            self._suffer(trouble)
        self._is_stuck = True

    def _look_at_size(self) -> None:
        """L21."""
        self._unlooked = 0
        if statements.used_bytes(self._connection) >= self._limits.max_store_size:
            self.problem = f"it takes {self._limits.max_store_size} bytes already (max_store_size)"

    def _look_again(self) -> None:
        """Whether there is room by now, and leave to write: both for us and for what is kept back."""
        self._look_at = monotonic() + self._limits.retry
        self._look_for_files()
        if self.problem is None:
            self._ballast.make()
            self._look_at_size()
            return
        self._backlog.notes[AUTHOR] = self._author  # something to try with
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

        def hand_over() -> None:
            if batch:
                deliver(batch)
                queue.put(BatchConsumed())
            else:
                finished()

        self._post(hand_over)

    # ---------------------------------------------------------------- what can wait

    def _has_chores(self) -> bool:
        return self._log_pages >= IDLE_PAGES or self._waiting_for_check is not None or self._has_free_pages

    def _tidy(self, is_idle: bool) -> None:
        if monotonic() >= self._look_at:
            self._look_again()
        if self._is_stuck or self._is_lost:
            return
        if self._unsafe is not None and not len(self._backlog):
            self._post(_call_done(self._unsafe, None))  # attempts wait for that: they are on disk by now (R108)
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
        """Carry the log over into the file. Where there is no room for that, the log goes on growing for a while."""
        if self._do_chore(f"PRAGMA wal_checkpoint({mode})"):
            self._log_pages = 0
            return True
        return False

    def _vacuum(self) -> None:
        self._has_free_pages = self._connection.pragma("freelist_count") > VACUUM_PAGES
        if self._has_free_pages:
            self._do_chore(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")

    def _do_chore(self, statement: str) -> bool:
        try:
            self._connection.execute(statement).fetchall()
        except apsw.Error as error:
            trouble = temporary_error(error, self._connection.system_errno)
            if trouble is None:
                raise
            self._suffer(trouble)
            return False
        return True

    def _check(self) -> None:
        """R109: what was put off at the start, for as long as nobody wants anything."""
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
        group.fates.update(each.fates)
        group.notes.update(each.notes)
        for number in each.erased:
            group.add_erased(number)
    return group


def _weight(item: Item) -> tuple[int, int]:
    return (len(item), item.size) if type(item) is WriteRequest else (1, 0)


def _call_done(entries: WriteRequest, problem: str | None) -> Call:
    return lambda: entries.done(entries.last, problem)


def _tell(told: list[Call]) -> None:
    for call in told:
        call()
