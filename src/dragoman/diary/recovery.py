"""Reading what can be read of a damaged diary, row by row, into a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import strftime

import apsw

from dragoman.diary.records import FATE_COLUMNS, JOB_COLUMNS, Row
from dragoman.diary.schema import AUTHOR, NAME, bring_up_to_date, check_file, open_file
from dragoman.diary.trouble import DiaryError

ROWS_A_COMMIT = 1_000
MOST_FAILURES = 200_000  # so many places that cannot be read, and the rest is given up
COMPANIONS = ("", "-wal", "-journal")


@dataclass(frozen=True, slots=True)
class Recovered:
    jobs: int
    fates: int
    notes: int
    unreadable: int  # places that were passed over: each is a row, or a part of the file with none
    damaged: Path  # where the old file is now


def check(folder: Path) -> str:
    """What is wrong with this folder's diary; empty if nothing is."""
    connection = open_file(_present(folder))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    try:
        return check_file(connection, lambda: False) or ""
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return str(error)
    finally:
        connection.close()


def recover(folder: Path) -> Recovered:
    """Make a new diary of what can be read; the old one is kept beside it, under another name."""
    path = _present(folder)
    fresh = folder / f"{NAME}.new"
    for suffix in COMPANIONS:
        Path(f"{fresh}{suffix}").unlink(missing_ok=True)
    try:
        source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    except apsw.Error as error:
        raise DiaryError(f"{path} cannot be opened at all: {error}") from error
    source.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # what is damaged stays as it is
    try:
        _refuse_strangers(source, path)
        target = open_file(fresh)
        try:
            bring_up_to_date(target)
            jobs, lost_jobs = _copy(source, target, "job", JOB_COLUMNS)
            fates, lost_fates = _copy(source, target, "fate", FATE_COLUMNS)
            target.execute("DELETE FROM fate WHERE number NOT IN (SELECT number FROM job)")
            notes, lost_notes = _copy_notes(source, target)
        finally:
            target.close()
    finally:
        source.close()
    away = folder / f"{NAME}.damaged-{strftime('%Y%m%d-%H%M%S')}"
    for suffix in COMPANIONS:
        if os.path.exists(f"{path}{suffix}"):
            os.replace(f"{path}{suffix}", f"{away}{suffix}")
    os.replace(fresh, path)
    return Recovered(jobs, fates, notes, lost_jobs + lost_fates + lost_notes, away)


def _present(folder: Path) -> Path:
    path = folder / NAME
    if not path.exists():
        raise DiaryError(f"there is no diary in {folder}")
    return path


def _refuse_strangers(source: apsw.Connection, path: Path) -> None:
    try:
        source.execute("SELECT count(*) FROM sqlite_schema").get  # noqa: B018
    except apsw.Error as error:
        raise DiaryError(f"nothing of {path} can be read: {error}") from error


def _copy(source: apsw.Connection, target: apsw.Connection, table: str, columns: tuple[str, ...]) -> tuple[int, int]:
    """How many rows there were, and how many places could not be read."""
    known = {row[1] for row in source.execute(f"PRAGMA table_info({table})")}
    names = ", ".join(name for name in columns if name in known)
    marks = ", ".join("?" for name in columns if name in known)
    insert = f"INSERT OR IGNORE INTO {table}({names}) VALUES ({marks})"  # noqa: S608
    copied = unreadable = 0
    some: list[Row] = []

    def flush() -> None:
        with target:
            target.executemany(insert, some)
        some.clear()

    for row in _rows(source, table, names):
        if row is None:
            unreadable += 1
            continue
        some.append(row)
        copied += 1
        if len(some) >= ROWS_A_COMMIT:
            flush()
    flush()
    return copied, unreadable


def _rows(source: apsw.Connection, table: str, names: str) -> Iterator[Row | None]:
    """By number; None for a place that cannot be read. A range with such a place in it is halved until it is alone."""
    ranges = [(0, _last(source, table))]
    failures = 0
    while ranges and failures < MOST_FAILURES:
        low, high = ranges.pop()  # numbers above the one and up to the other
        query = f"SELECT {names} FROM {table} WHERE number > ? AND number <= ? ORDER BY number"  # noqa: S608
        try:
            for row in source.execute(query, (low, high)):
                yield row
                low = row[0]
        except apsw.Error:
            failures += 1
            if high - low <= 1:
                yield None
                continue
            middle = (low + high) // 2
            ranges += [(middle, high), (low, middle)]


def _last(source: apsw.Connection, table: str) -> int:
    try:
        return source.execute(f"SELECT max(number) FROM {table}").get or 0  # noqa: S608
    except apsw.Error:
        return 1 << 40  # that part cannot be read: try whatever there may be


def _copy_notes(source: apsw.Connection, target: apsw.Connection) -> tuple[int, int]:
    copied = 0
    try:
        for key, value in source.execute("SELECT key, value FROM note"):
            if key != AUTHOR:
                target.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (key, value))
                copied += 1
    except apsw.Error:
        return copied, 1
    return copied, 0
