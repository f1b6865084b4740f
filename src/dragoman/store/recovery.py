"""Checks whether a store can be read, and recovers what is readable of a damaged one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from time import strftime, time
from typing import Final

import apsw

from dragoman.store import checksums
from dragoman.store.counter import NAME as COUNTER
from dragoman.store.counter import Count, read_count
from dragoman.store.damaged_tables import (
    NO_INFO,
    Table,
    columns_of,
    is_sealed,
    job_names,
    job_table,
    notes_of,
    status_table,
)
from dragoman.store.errors import StoreCorrupted, StoreError, temporary_error
from dragoman.store.file_names import NAME, log_of
from dragoman.store.log import is_blank
from dragoman.store.losses import Loss, after_opening, bad_epoch, before_opening, without_store, write_epoch
from dragoman.store.rebuilding import rebuild
from dragoman.store.row_counter import RowCounter, no_progress
from dragoman.store.rows import JOB_COLUMNS, STATUS_COLUMNS, Row
from dragoman.store.schema import (
    COMMITS,
    OWN_NOTES,
    VERSION,
    bring_up_to_date,
    check_file,
    has_bytes,
    is_new,
    make_store,
    noted_version,
    open_file,
)
from dragoman.store.sealing import Progress
from dragoman.store.statements import write_note

ROWS_A_COMMIT = 1_000
MOST_STARTS: Final = 1 << 20  # half of those that have worker numbers of their own (`server/datadir.py`)
YEAR_2020: Final = 1_577_836_800.0
COMPANIONS = ("", "-wal", "-journal")
# Informative columns of a status: if they cannot be read, the rest still counts.
INFO_COLUMNS = {"history": "NULL", "reason": "NULL", "worker": "iif(token IS NULL, NULL, '')", "told_sum": str(NO_INFO)}


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result of a recovery."""

    jobs: int
    fates: int  # jobs with their status
    notes: int
    left_out: int  # jobs and values that exist, but cannot be read
    untold: int  # jobs of which only the history, the reason or the worker's name is lost
    as_submitted: int  # jobs whose status cannot be read
    places: int  # parts of the file that cannot be read, with an unknown number of rows
    damaged: Path  # new path of the old file or its log
    lost: str  # damage of the log, or missing files
    missing: list[str]  # one line for each job that is missing or reset
    epoch: int | None = None  # the new one, if the old one was damaged


@dataclass(frozen=True, slots=True)
class Findings:
    """Result of a check. `sentence` is empty if the store is in order."""

    sentence: str = ""
    jobs: list[str] = field(default_factory=list)  # one line for each affected job, as far as known


def check(folder: Path) -> str:
    """Return an error message about this folder's store; empty if there is none."""
    return examine(folder).sentence


def examine(folder: Path, progress: Progress = no_progress) -> Findings:
    """Read everything that a broker would read of this folder's store, and compare all checksums."""
    loss = without_store(folder) or before_opening(folder)
    if loss is not None:
        return Findings(loss.how, loss.jobs)
    if (problem := bad_epoch(folder)) is not None:
        return Findings(problem)
    path = _present(folder)
    try:
        connection = open_file(path)
    except StoreCorrupted as error:
        return Findings(str(error.__cause__ or error))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    with closing(connection):
        try:
            loss = after_opening(connection, folder)
            if loss is not None:
                return Findings(loss.how, loss.jobs)
            found = check_file(connection, lambda: False)
            return Findings(found) if found else _check_rows(connection, path, progress)
        except (apsw.CorruptError, apsw.NotADBError, StoreCorrupted) as error:
            return Findings(str(error))
        except apsw.Error as error:
            raise StoreError(f"{path} cannot be read: {error}") from error


def recover(folder: Path, *, force: bool = False, progress: Progress = no_progress) -> Recovered | None:
    """Create a new store from what can be read. The old one is kept beside it, under another name.

    None if the store is in order: then nothing is done, unless by force.
    """
    if not force and not examine(folder, progress).sentence:
        return None
    path = folder / NAME
    if not has_bytes(path) and is_blank(log_of(path)):
        advice = "restore a backup, or begin with an empty store by `dragoman store accept`"
        raise StoreError(f"nothing of {path} is left ({check(folder)}): {advice}")
    fresh, joined = folder / f"{NAME}.new", folder / f"{NAME}.joined"
    away = folder / f"{NAME}.damaged-{strftime('%Y%m%d-%H%M%S')}"
    loss = _loss(folder)
    _remove(fresh)
    try:
        if loss is None or loss.is_short:
            found = _copy_from(path, fresh, folder, away, loss, progress)
        else:
            rebuild(path, joined)
            found = _copy_from(joined, fresh, folder, away, loss, progress)
        _put_in_place(fresh, path, away)
        (folder / COUNTER).unlink(missing_ok=True)  # it belongs to the old one
        if bad_epoch(folder) is not None:
            epoch = _new_epoch()
            write_epoch(folder, epoch)
            found = replace(found, epoch=epoch)
    except OSError as error:
        raise StoreError(f"{path} cannot be recovered: {error}") from error
    finally:
        _remove(fresh)
        _remove(joined)
    return found


def _new_epoch() -> int:
    """Return an epoch that no run of a broker had: there is one for each start, and starts of a million are more than a
    folder sees. The hours since 2020 are added, in case an epoch is damaged again."""
    return MOST_STARTS + int((time() - YEAR_2020) / 3_600.0)


def accept(folder: Path) -> None:
    """Let the next start accept this folder's store as it is, although more was acknowledged: for a restored backup.

    If there is none, an empty one is created. Raises StoreError if it is damaged.
    """
    path = folder / NAME
    if not has_bytes(path) and not is_blank(log_of(path)):
        raise StoreError(f"{path} is gone, but its log is there: run `dragoman store recover` on its folder")
    try:
        count = folder / COUNTER
        aside = folder / f"{COUNTER}.old"
        if count.exists():
            os.replace(count, aside)  # the folder is checked without it
        make_store(folder)
        found = check(folder)
        if found:
            if aside.exists():
                os.replace(aside, count)
            raise StoreError(f"{path} is damaged ({found}): run `dragoman store recover` on its folder")
        aside.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be used: {error}") from error


def _loss(folder: Path) -> Loss | None:
    """Return damage of the log, or missing files. In that case the file and its log are merged without SQLite."""
    loss = before_opening(folder)
    if loss is not None:
        return loss
    try:
        connection = open_file(folder / NAME)
    except StoreError:
        return None
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    with closing(connection):
        try:
            return after_opening(connection, folder)
        except apsw.Error:
            return None


def _copy_from(source: Path, fresh: Path, folder: Path, away: Path, loss: Loss | None, progress: Progress) -> Recovered:
    with closing(_open_damaged(source)) as connection:
        _check_readable(connection, source)
        return _copy_into(fresh, connection, source, away, loss, read_count(folder), progress)


def _present(folder: Path) -> Path:
    path = folder / NAME
    if not path.exists():
        raise StoreError(f"there is no store in {folder}")
    return path


def _remove(path: Path) -> None:
    for suffix in COMPANIONS:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _put_in_place(fresh: Path, path: Path, away: Path) -> None:
    """Replace the store. A store exists at every moment: without one, a broker would create a new one."""
    if path.exists():
        try:
            os.link(path, away)
        except OSError:  # not every file system supports hard links
            os.replace(path, away)
    for suffix in COMPANIONS[1:]:
        if os.path.exists(f"{path}{suffix}"):
            os.replace(f"{path}{suffix}", f"{away}{suffix}")
    os.replace(fresh, path)


# -------------------------------------------------------------------- checking


def _check_rows(connection: apsw.Connection, path: Path, progress: Progress) -> Findings:
    """Check the content of rows: the file may be valid, and its rows not."""
    if is_new(connection):
        return Findings()
    sealed = is_sealed(connection)
    jobs, statuses = job_table(connection, path, sealed), status_table(connection, path, sealed)
    counter = RowCounter(connection, progress)
    for rows in (jobs, statuses):
        for _ in counter.counted(rows):
            pass
    notes = sum(note is None for note in notes_of(connection, sealed))
    counts = {"jobs": len(jobs.unread), "job statuses": len(statuses.unread), "notes": notes}
    problems = [f"{count} {kind}" for kind, count in counts.items() if count]
    if not problems:
        return Findings()
    names = [f"{name}: it cannot be read" for name in job_names(connection, jobs.unread)]
    names += [f"{name}: its status cannot be read" for name in job_names(connection, statuses.unread)]
    return Findings(f"{', '.join(problems)} cannot be read", names)


# -------------------------------------------------------------------- copying


def _open_damaged(path: Path) -> apsw.Connection:
    try:
        source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        source.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the damaged file is not changed
        source.pragma("locking_mode", "EXCLUSIVE")
        # Nothing is written to it. But with this, SQLite also reads a file that is shorter than its header says.
        source.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error
    return source


def _check_readable(source: apsw.Connection, path: Path) -> None:
    try:
        version = source.pragma("user_version")
        for table in ("job", "fate"):
            columns_of(source, table)
    except (apsw.Error, StoreCorrupted) as error:
        raise StoreError(f"nothing of {path} can be read ({error}): restore a backup, or move it away") from error
    noted = noted_version(source)
    if version > VERSION and (noted is None or noted > VERSION):
        raise StoreError(f"{path} was written by a newer Dragoman (format {version}): use that release")


def _copy_into(
    fresh: Path,
    source: apsw.Connection,
    path: Path,
    away: Path,
    loss: Loss | None,
    counted: tuple[Count, bool] | None,
    progress: Progress,
) -> Recovered:
    target = open_file(fresh)
    with closing(target):
        try:
            bring_up_to_date(target)
            found = _copy_all(source, target, path, away, loss, progress)
            if counted is not None:
                write_note(target, COMMITS, counted[0].text)
            target.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)  # its log is not moved
        except apsw.Error as error:
            reason = temporary_error(error, target.system_errno) or str(error)
            raise StoreError(f"a new store cannot be written in {fresh.parent}: {reason}") from error
    return found


def _copy_all(
    source: apsw.Connection, target: apsw.Connection, path: Path, away: Path, loss: Loss | None, progress: Progress
) -> Recovered:
    counter = RowCounter(source, progress)
    sealed = is_sealed(source)
    jobs, statuses = job_table(source, path, sealed), status_table(source, path, sealed)
    _copy(jobs, counter.counted(jobs), target, checksums.sealed_job, len(JOB_COLUMNS))
    _copy(statuses, counter.counted(statuses), target, checksums.sealed_status, len(STATUS_COLUMNS))
    mended = [row for number in statuses.unread if (row := statuses.read_without(number, INFO_COLUMNS)) is not None]
    _copy(statuses, mended, target, checksums.sealed_status, len(STATUS_COLUMNS))
    target.execute("DELETE FROM fate WHERE number NOT IN (SELECT number FROM job)")
    notes = left_out = 0
    for note in notes_of(source, sealed):
        if note is None:
            left_out += 1
        elif note[0] not in OWN_NOTES:
            write_note(target, *note)
            notes += 1
    unread = {*statuses.unread} - {*jobs.unread}
    lost = sorted(unread - _numbers(target, "fate", unread))
    return Recovered(
        jobs=target.execute("SELECT count(*) FROM job").get,
        fates=target.execute("SELECT count(*) FROM fate").get,
        notes=notes,
        left_out=left_out + len(jobs.unread),
        untold=len(_numbers(target, "fate", [row[0] for row in mended])),
        as_submitted=len(_numbers(target, "job", lost)),
        places=jobs.places + statuses.places,
        damaged=away,
        lost=loss.how if loss is not None else "",
        missing=[
            *_still_missing(target, loss),
            *(f"{name}: left out" for name in job_names(source, jobs.unread)),
            *(f"{name}: reset to its state at submission" for name in job_names(source, lost)),
        ],
    )


def _still_missing(target: apsw.Connection, loss: Loss | None) -> list[str]:
    if loss is None:
        return []
    here = {id.hex() for (id,) in target.execute("SELECT id FROM job")}
    return [f"job {id}: missing" for id in loss.jobs if id not in here]


def _copy(table: Table, rows: Iterable[Row], target: apsw.Connection, seal: Callable[[Row], Row], width: int) -> None:
    """Copy rows in batches. `width`: the number of columns before the checksums, which are computed again."""
    marks = ", ".join("?" for _ in table.columns)
    insert = f"INSERT OR IGNORE INTO {table.name}({', '.join(table.columns)}) VALUES ({marks})"  # noqa: S608
    rest = iter(rows)
    while some := list(islice(rest, ROWS_A_COMMIT)):
        with target:
            target.executemany(insert, [seal(row[:width]) for row in some])


def _numbers(target: apsw.Connection, table: str, numbers: Iterable[object]) -> set[int]:
    """Return those of the numbers that exist in the table."""
    query = f"SELECT number FROM {table} WHERE number IN (SELECT value FROM json_each(?))"  # noqa: S608
    return {number for (number,) in target.execute(query, (json.dumps(list(numbers)),))}
