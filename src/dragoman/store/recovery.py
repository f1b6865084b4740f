"""Finding out whether a diary can be read, and making a new one of what can be read of a damaged one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import strftime

import apsw

from dragoman.store import checksums
from dragoman.store.counter import NAME as COUNTER
from dragoman.store.counter import Count, read_count
from dragoman.store.damaged_tables import (
    UNTOLD,
    Table,
    columns_of,
    fate_table,
    is_sealed,
    job_names,
    job_table,
    notes_of,
)
from dragoman.store.errors import StoreCorrupted, StoreError, temporary_error
from dragoman.store.file_names import NAME, log_of
from dragoman.store.log import is_blank
from dragoman.store.losses import Loss, after_opening, bad_epoch, before_opening, without_store
from dragoman.store.rebuilding import rebuild
from dragoman.store.rows import FATE_COLUMNS, JOB_COLUMNS, Row
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
from dragoman.store.statements import write_note

ROWS_A_COMMIT = 1_000
COMPANIONS = ("", "-wal", "-journal")
# What is told about a fate, but decides nothing: if it cannot be read, the rest still counts.
TOLD = {"history": "NULL", "reason": "NULL", "worker": "iif(token IS NULL, NULL, '')", "told_sum": str(UNTOLD)}


@dataclass(frozen=True, slots=True)
class Recovered:
    jobs: int
    fates: int
    notes: int
    left_out: int  # jobs and notes that are there, but cannot be read
    untold: int  # jobs of which only the history, the reason or the worker's name is lost
    as_submitted: int  # jobs with a fate that cannot be read
    places: int  # parts of the file that cannot be read: nobody knows what was there
    damaged: Path  # where the old file is now, or its log
    lost: str  # what is wrong with the log, or missing altogether
    missing: list[str]  # what is known of each job that is not there, or not as it was: a line each


@dataclass(frozen=True, slots=True)
class Findings:
    """Something is wrong if there is a sentence."""

    sentence: str = ""
    jobs: list[str] = field(default_factory=list)  # a line for each job that is affected, as far as they are known


def check(folder: Path) -> str:
    """What is wrong with this folder's diary; empty if nothing is."""
    return examine(folder).sentence


def examine(folder: Path) -> Findings:
    """Read everything that a broker would read of this folder's diary, and compare all checksums."""
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
            return Findings(found) if found else _check_rows(connection, path)
        except (apsw.CorruptError, apsw.NotADBError, StoreCorrupted) as error:
            return Findings(str(error))
        except apsw.Error as error:
            raise StoreError(f"{path} cannot be read: {error}") from error


def recover(folder: Path, *, force: bool = False) -> Recovered | None:
    """Make a new diary of what can be read; the old one is kept beside it, under another name.

    None if the diary is in order: then nothing is done, unless by force.
    """
    if not force and not check(folder):
        return None
    path = folder / NAME
    if not has_bytes(path) and is_blank(log_of(path)):
        advice = "restore a backup, or begin with an empty diary by `dragoman store accept`"
        raise StoreError(f"nothing of {path} is left ({check(folder)}): {advice}")
    fresh, joined = folder / f"{NAME}.new", folder / f"{NAME}.joined"
    away = folder / f"{NAME}.damaged-{strftime('%Y%m%d-%H%M%S')}"
    loss = _loss(folder)
    _remove(fresh)
    try:
        if loss is None or loss.is_short:
            found = _copy_from(path, fresh, folder, away, loss)
        else:
            rebuild(path, joined)
            found = _copy_from(joined, fresh, folder, away, loss)
        _put_in_place(fresh, path, away)
        (folder / COUNTER).unlink(missing_ok=True)  # it told of the old one
    except OSError as error:
        raise StoreError(f"{path} cannot be recovered: {error}") from error
    finally:
        _remove(fresh)
        _remove(joined)
    return found


def accept(folder: Path) -> None:
    """Let the next start take this folder's diary as it is, although more was acknowledged: for a restored backup.

    Where there is none, an empty one is made. Raises DiaryError if it is damaged in itself.
    """
    path = folder / NAME
    if not has_bytes(path) and not is_blank(log_of(path)):
        raise StoreError(f"{path} is gone, but its log is there: run `dragoman store recover` on its folder")
    try:
        count = folder / COUNTER
        aside = folder / f"{COUNTER}.old"
        if count.exists():
            os.replace(count, aside)  # what is in the folder is judged without it
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
    """What is wrong with the log, or missing altogether: then the file is put together with its log by ourselves."""
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


def _copy_from(source: Path, fresh: Path, folder: Path, away: Path, loss: Loss | None) -> Recovered:
    with closing(_open_damaged(source)) as connection:
        _refuse_strangers(connection, source)
        return _copy_into(fresh, connection, source, away, loss, read_count(folder))


def _present(folder: Path) -> Path:
    path = folder / NAME
    if not path.exists():
        raise StoreError(f"there is no diary in {folder}")
    return path


def _remove(path: Path) -> None:
    for suffix in COMPANIONS:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _put_in_place(fresh: Path, path: Path, away: Path) -> None:
    """At every moment there is a diary: if there were none, a broker would begin a new one."""
    if path.exists():
        try:
            os.link(path, away)
        except OSError:  # not every file system can give a file two names
            os.replace(path, away)
    for suffix in COMPANIONS[1:]:
        if os.path.exists(f"{path}{suffix}"):
            os.replace(f"{path}{suffix}", f"{away}{suffix}")
    os.replace(fresh, path)


# -------------------------------------------------------------------- looking


def _check_rows(connection: apsw.Connection, path: Path) -> Findings:
    """The file may be whole, and what is in it nonsense."""
    if is_new(connection):
        return Findings()
    sealed = is_sealed(connection)
    jobs, fates = job_table(connection, path, sealed), fate_table(connection, path, sealed)
    for rows in (jobs, fates):
        for _ in rows:
            pass
    notes = sum(note is None for note in notes_of(connection, sealed))
    counts = {"jobs": len(jobs.unread), "fates of jobs": len(fates.unread), "notes": notes}
    said = [f"{count} {what}" for what, count in counts.items() if count]
    if not said:
        return Findings()
    names = [f"{name}: it cannot be read" for name in job_names(connection, jobs.unread)]
    names += [f"{name}: what happened to it cannot be read" for name in job_names(connection, fates.unread)]
    return Findings(f"{', '.join(said)} cannot be read", names)


# -------------------------------------------------------------------- copying


def _open_damaged(path: Path) -> apsw.Connection:
    try:
        source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        source.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # what is damaged stays as it is
        source.pragma("locking_mode", "EXCLUSIVE")
        # We do not write to it. But so SQLite reads also a file that is shorter than its header says.
        source.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be opened at all: {error}") from error
    return source


def _refuse_strangers(source: apsw.Connection, path: Path) -> None:
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
) -> Recovered:
    target = open_file(fresh)
    with closing(target):
        try:
            bring_up_to_date(target)
            found = _copy_all(source, target, path, away, loss)
            if counted is not None:
                write_note(target, COMMITS, counted[0].text)
            target.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)  # its log stays behind
        except apsw.Error as error:
            why = temporary_error(error, target.system_errno) or str(error)
            raise StoreError(f"a new diary cannot be written in {fresh.parent}: {why}") from error
    return found


def _copy_all(source: apsw.Connection, target: apsw.Connection, path: Path, away: Path, loss: Loss | None) -> Recovered:
    sealed = is_sealed(source)
    jobs, fates = job_table(source, path, sealed), fate_table(source, path, sealed)
    _copy(jobs, jobs, target, checksums.sealed_job, len(JOB_COLUMNS))
    _copy(fates, fates, target, checksums.sealed_fate, len(FATE_COLUMNS))
    mended = [row for number in fates.unread if (row := fates.read_without(number, TOLD)) is not None]
    _copy(fates, mended, target, checksums.sealed_fate, len(FATE_COLUMNS))
    target.execute("DELETE FROM fate WHERE number NOT IN (SELECT number FROM job)")
    notes = left_out = 0
    for note in notes_of(source, sealed):
        if note is None:
            left_out += 1
        elif note[0] not in OWN_NOTES:
            write_note(target, *note)
            notes += 1
    unread = {*fates.unread} - {*jobs.unread}
    lost = sorted(unread - _numbers(target, "fate", unread))
    return Recovered(
        jobs=target.execute("SELECT count(*) FROM job").get,
        fates=target.execute("SELECT count(*) FROM fate").get,
        notes=notes,
        left_out=left_out + len(jobs.unread),
        untold=len(_numbers(target, "fate", [row[0] for row in mended])),
        as_submitted=len(_numbers(target, "job", lost)),
        places=jobs.places + fates.places,
        damaged=away,
        lost=loss.how if loss is not None else "",
        missing=[
            *_still_missing(target, loss),
            *(f"{name}: left out" for name in job_names(source, jobs.unread)),
            *(f"{name}: as it was submitted" for name in job_names(source, lost)),
        ],
    )


def _still_missing(target: apsw.Connection, loss: Loss | None) -> list[str]:
    if loss is None:
        return []
    here = {id.hex() for (id,) in target.execute("SELECT id FROM job")}
    return [f"job {id}: missing" for id in loss.jobs if id not in here]


def _copy(table: Table, rows: Iterable[Row], target: apsw.Connection, seal: Callable[[Row], Row], width: int) -> None:
    """`width`: how many columns come before the checksums, which are made anew."""
    marks = ", ".join("?" for _ in table.columns)
    insert = f"INSERT OR IGNORE INTO {table.name}({', '.join(table.columns)}) VALUES ({marks})"  # noqa: S608
    rest = iter(rows)
    while some := list(islice(rest, ROWS_A_COMMIT)):
        with target:
            target.executemany(insert, [seal(row[:width]) for row in some])


def _numbers(target: apsw.Connection, table: str, numbers: Iterable[object]) -> set[int]:
    """Those of them that are there."""
    query = f"SELECT number FROM {table} WHERE number IN (SELECT value FROM json_each(?))"  # noqa: S608
    return {number for (number,) in target.execute(query, (json.dumps(list(numbers)),))}
