"""Exports the store of a data folder, and imports into an empty one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw

from dragoman.core.remembered import CLIENT, FORGOTTEN
from dragoman.server import clock
from dragoman.server.datadir import DataFolder, DataFolderLocked, FolderLock
from dragoman.store import statements
from dragoman.store.commit import Commit
from dragoman.store.counter import Count
from dragoman.store.errors import InvalidRow, StoreError
from dragoman.store.file_names import NAME
from dragoman.store.losses import is_there
from dragoman.store.schema import COMMITS, OWN_NOTES, damaged, make_store, open_file
from dragoman.store.sqlite import SqliteStore
from dragoman.transfer.errors import InUse, TransferError
from dragoman.transfer.exported_job import ExportedJob
from dragoman.transfer.file_index import FileIndex
from dragoman.transfer.jobs_file import FileReader, FileWriter, Progress

ROWS: Final = 500  # in one statement of reading or writing


def export_folder(folder: Path, file: FileWriter, release: str, progress: Progress) -> None:
    """Write everything that a stopped broker has stored. Raises InUse, TransferError and StoreError."""
    if not folder.is_dir() or not is_there(folder):
        raise TransferError(f"there is no store in {folder}; pass the data folder of a broker")
    with _locked(folder), closing(_checked(folder, release)) as connection:
        try:
            _export(connection, file, progress)
        except (InvalidRow, UnicodeDecodeError) as error:
            raise damaged(folder / NAME, str(error)) from error
        except apsw.Error as error:
            raise StoreError(f"{folder / NAME} cannot be read: {error}") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        held = FolderLock(folder)
    except DataFolderLocked as error:
        raise InUse(f"{error}: stop it first") from None
    try:
        yield
    finally:
        held.close()


def _checked(folder: Path, release: str) -> apsw.Connection:
    """Open the store as a broker does: it is checked, and one of an earlier release is upgraded."""
    problem = SqliteStore(folder, lambda call: call(), clock.wall_offset, author=release).close()
    if problem is not None:
        raise StoreError(f"{folder / NAME} cannot be used: {problem}")
    return open_file(folder / NAME)


def _export(connection: apsw.Connection, file: FileWriter, progress: Progress) -> None:
    total, last, after = connection.execute("SELECT count(*) FROM job").get, statements.last_number(connection), 0
    while rows := statements.read_batch(connection, after, last, ROWS):
        for row in rows:
            after = row[0]  # type: ignore[assignment]
            payload, result = statements.read_bodies(connection, after)
            head, status = list(row[1:10]), list(row[10:])
            is_new = status.count(None) == len(status)
            status.insert(-1, bytes(result) or None)
            file.add_job(ExportedJob(head, bytes(payload), None if is_new else status))
        progress(file.counts["jobs"], total)
    if file.counts["jobs"] != total:
        raise TransferError(
            f"the store has {total} jobs, and {file.counts['jobs']} were read; run `dragoman store check`"
        )
    for key, value in statements.read_notes(connection):
        if key not in OWN_NOTES and not key.startswith((CLIENT, FORGOTTEN)):
            file.add_value(key, value)


def import_folder(folder: Path, file: FileReader, index: FileIndex, release: str, progress: Progress) -> None:
    """Write everything of a file into an empty folder, in one transaction: all of it or nothing. Raises InUse,
    TransferError and StoreError."""
    if folder.is_dir() and not is_there(folder) and os.listdir(folder):
        raise TransferError(f"{folder} is not empty, and no data folder; name another one")
    try:
        held = DataFolder(folder, lambda path: make_store(path, release))
    except DataFolderLocked as error:
        raise InUse(f"{error}: stop it first") from None
    try:
        with closing(_checked(folder, release)) as connection:
            _check_empty(connection, folder)
            try:
                _import(connection, file, index, progress)
            except apsw.Error as error:
                raise StoreError(f"{folder / NAME} cannot be written: {error}; nothing was imported") from error
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        held.close()


def _check_empty(connection: apsw.Connection, folder: Path) -> None:
    jobs = connection.execute("SELECT count(*) FROM job").get
    values = [key for key, _ in statements.read_notes(connection) if key not in OWN_NOTES]
    if jobs or values:
        what = f"{jobs} jobs and {len(values)} schedules, pauses, limits or groups"
        raise TransferError(f"{folder} has {what}; import into a new folder, so that nothing is mixed or lost")


def _import(connection: apsw.Connection, file: FileReader, index: FileIndex, progress: Progress) -> None:
    numbers = index.numbers(file.source)
    total = len(numbers)
    count = Count.of(statements.read_note(connection, COMMITS))
    connection.execute("BEGIN IMMEDIATE")
    try:
        group, done = Commit(), 0
        for item in file.read():
            if isinstance(item, ExportedJob):
                number = numbers[item.id]
                group.jobs.append((number, *item.head, item.payload))
                if item.status is not None:
                    group.statuses[number] = (number, *item.status)
                done += 1
            else:
                group.notes[item[0]] = item[1]
            if len(group) >= ROWS:
                statements.write(connection, group, [])
                group = Commit()
                progress(done, total)
        statements.write(connection, group, [])
        _compare(connection, file.counts)
        statements.write_note(connection, COMMITS, count.next(done, clock.now() + clock.wall_offset()).text)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    progress(total, total)


def _compare(connection: apsw.Connection, counts: dict[str, int]) -> None:
    jobs = connection.execute("SELECT count(*) FROM job").get
    values = len([key for key, _ in statements.read_notes(connection) if key not in OWN_NOTES])
    wanted = sum(counts.values()) - counts["jobs"]
    if (jobs, values) != (counts["jobs"], wanted):
        raise TransferError(
            f"the file has {counts['jobs']} jobs and {wanted} values; {jobs} and {values} were written: nothing is kept"
        )
