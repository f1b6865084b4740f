"""Finding out whether a diary can be read, and making a new one of what can be read of a damaged one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import strftime

import apsw

from dragoman.core.model import JobId, Wishes
from dragoman.core.revival import Kept
from dragoman.diary.records import FATE_COLUMNS, JOB_COLUMNS, PAYLOAD, Reader, Row
from dragoman.diary.salvage import Salvage
from dragoman.diary.schema import AUTHOR, NAME, VERSION, bring_up_to_date, check_file, is_new, open_file
from dragoman.diary.trouble import Damaged, DiaryError, Unreadable, passing

ROWS_A_COMMIT = 1_000
COMPANIONS = ("", "-wal", "-journal")
RESULT = FATE_COLUMNS.index("result")
SINCE = {"may_return": "0"}  # columns that older files do not have, and what they would say
# What is told about a fate, but decides nothing: if it cannot be read, the rest still counts.
TOLD = {"history": "NULL", "reason": "NULL", "worker": "iif(token IS NULL, NULL, '')"}


@dataclass(frozen=True, slots=True)
class Recovered:
    jobs: int
    fates: int
    notes: int
    left_out: int  # jobs and notes that are there, but cannot be read
    untold: int  # jobs of which only the history, the reason or the worker's name is lost
    as_submitted: int  # jobs with a fate that cannot be read
    places: int  # parts of the file that cannot be read: nobody knows what was there
    damaged: Path  # where the old file is now


def check(folder: Path) -> str:
    """What is wrong with this folder's diary; empty if nothing is."""
    path = _present(folder)
    try:
        connection = open_file(path)
    except Damaged as error:
        return str(error.__cause__ or error)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    with closing(connection):
        try:
            return check_file(connection, lambda: False) or _check_rows(connection, path)
        except (apsw.CorruptError, apsw.NotADBError, Damaged) as error:
            return str(error)
        except apsw.Error as error:
            raise DiaryError(f"{path} cannot be read: {error}") from error


def recover(folder: Path, *, force: bool = False) -> Recovered | None:
    """Make a new diary of what can be read; the old one is kept beside it, under another name.

    None if the diary is in order: then nothing is done, unless by force.
    """
    if not force and not check(folder):
        return None
    path = _present(folder)
    fresh = folder / f"{NAME}.new"
    away = folder / f"{NAME}.damaged-{strftime('%Y%m%d-%H%M%S')}"
    _remove(fresh)
    try:
        with closing(_open_damaged(path)) as source:
            _refuse_strangers(source, path)
            found = _copy_into(fresh, source, path, away)
        _put_in_place(fresh, path, away)
    except OSError as error:
        raise DiaryError(f"{path} cannot be recovered: {error}") from error
    finally:
        _remove(fresh)
    return found


def _present(folder: Path) -> Path:
    path = folder / NAME
    if not path.exists():
        raise DiaryError(f"there is no diary in {folder}")
    return path


def _remove(path: Path) -> None:
    for suffix in COMPANIONS:
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _put_in_place(fresh: Path, path: Path, away: Path) -> None:
    """At every moment there is a diary: if there were none, a broker would begin a new one."""
    try:
        os.link(path, away)
    except OSError:  # not every file system can give a file two names
        os.replace(path, away)
    for suffix in COMPANIONS[1:]:
        if os.path.exists(f"{path}{suffix}"):
            os.replace(f"{path}{suffix}", f"{away}{suffix}")
    os.replace(fresh, path)


# -------------------------------------------------------------------- looking


def _check_rows(connection: apsw.Connection, path: Path) -> str:
    """The file may be whole, and what is in it nonsense."""
    if is_new(connection):
        return ""
    jobs, fates = _jobs(connection, path), _fates(connection, path)
    for rows in (jobs, fates):
        for _ in rows:
            pass
    notes = sum(note is None for note in _notes(connection))
    counts = {"jobs": len(jobs.unread), "fates of jobs": len(fates.unread), "notes": notes}
    said = [f"{count} {what}" for what, count in counts.items() if count]
    return f"{', '.join(said)} cannot be read" if said else ""


class Table:
    """The rows of a table that can be read and make sense. Afterwards it tells of the others."""

    def __init__(
        self, source: apsw.Connection, path: Path, name: str, columns: tuple[str, ...], read: Callable[[Row], None]
    ) -> None:
        """`read` raises Unreadable."""
        self.name = name
        self.columns = columns
        self._source = source
        self._read = read
        self._known = _columns(source, name)
        self._salvage = Salvage(source, path, name, self._wanted({}))
        self._nonsense: list[int] = []

    def __iter__(self) -> Iterator[Row]:
        for row in self._salvage:
            if self._makes_sense(row):
                yield row
            else:
                self._nonsense.append(row[0])  # type: ignore[arg-type]

    @property
    def unread(self) -> list[int]:
        """Numbers of rows that are there, but cannot be read, or make no sense."""
        return self._salvage.lost + self._nonsense

    @property
    def places(self) -> int:
        return self._salvage.places

    def read_without(self, number: int, instead: dict[str, str]) -> Row | None:
        """One row, with something else in the place of some columns."""
        query = f"SELECT {self._wanted(instead)} FROM {self.name} WHERE number = ?"  # noqa: S608
        try:
            row = self._source.execute(query, (number,)).fetchone()
        except (apsw.Error, UnicodeDecodeError):
            return None
        return row if row is not None and self._makes_sense(row) else None

    def _wanted(self, instead: dict[str, str]) -> str:
        return ", ".join(instead.get(name, name if name in self._known else SINCE[name]) for name in self.columns)

    def _makes_sense(self, row: Row) -> bool:
        try:
            self._read(row)
        except Unreadable:
            return False
        return True


def _columns(source: apsw.Connection, table: str) -> set[str]:
    try:
        found = {row[1] for row in source.execute(f"PRAGMA table_info({table})")}
    except (apsw.Error, UnicodeDecodeError):
        found = set()
    missing = {*(JOB_COLUMNS if table == "job" else FATE_COLUMNS)} - found - {*SINCE}
    if missing:
        raise Damaged(f"the table {table} has no {', '.join(sorted(missing))}")
    return found


def _jobs(source: apsw.Connection, path: Path) -> Table:
    reader = Reader()

    def read(row: Row) -> None:
        reader.job(row[:PAYLOAD], 0.0)
        if not isinstance(row[PAYLOAD], bytes):
            raise Unreadable("its payload is none")

    return Table(source, path, "job", JOB_COLUMNS, read)


def _fates(source: apsw.Connection, path: Path) -> Table:
    reader = Reader()

    def read(row: Row) -> None:
        number, result = row[0], row[RESULT]
        assert isinstance(number, int)
        job = Kept(number, JobId(b""), "", Wishes(), 0.0)
        reader.add_fate(job, (*row[1:RESULT], *row[RESULT + 1 :]), 0.0)
        if result is not None and not isinstance(result, bytes):
            raise Unreadable("its result is none")

    return Table(source, path, "fate", FATE_COLUMNS, read)


def _notes(source: apsw.Connection) -> Iterator[tuple[str, str] | None]:
    """None for what cannot be read: one note, or all the rest."""
    query = "SELECT CAST(key AS BLOB), CAST(value AS BLOB) FROM note"  # bytes need not make sense
    try:
        for key, value in source.execute(query):
            try:
                yield key.decode(), value.decode()
            except (AttributeError, UnicodeDecodeError):
                yield None
    except apsw.Error:
        yield None


# -------------------------------------------------------------------- copying


def _open_damaged(path: Path) -> apsw.Connection:
    try:
        source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        source.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # what is damaged stays as it is
        source.pragma("locking_mode", "EXCLUSIVE")
        # We do not write to it. But so SQLite reads also a file that is shorter than its header says.
        source.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
    except apsw.Error as error:
        raise DiaryError(f"{path} cannot be opened at all: {error}") from error
    return source


def _refuse_strangers(source: apsw.Connection, path: Path) -> None:
    try:
        version = source.pragma("user_version")
        for table in ("job", "fate"):
            _columns(source, table)
    except (apsw.Error, Damaged) as error:
        raise DiaryError(f"nothing of {path} can be read ({error}): restore a backup, or move it away") from error
    if version > VERSION:
        raise DiaryError(f"{path} was written by a newer Dragoman (format {version}): use that release")


def _copy_into(fresh: Path, source: apsw.Connection, path: Path, away: Path) -> Recovered:
    target = open_file(fresh)
    with closing(target):
        try:
            bring_up_to_date(target)
            found = _copy_all(source, target, path, away)
            target.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)  # its log stays behind
        except apsw.Error as error:
            why = passing(error, target.system_errno) or str(error)
            raise DiaryError(f"a new diary cannot be written in {fresh.parent}: {why}") from error
    return found


def _copy_all(source: apsw.Connection, target: apsw.Connection, path: Path, away: Path) -> Recovered:
    jobs, fates = _jobs(source, path), _fates(source, path)
    _copy(jobs, jobs, target)
    _copy(fates, fates, target)
    mended = [row for number in fates.unread if (row := fates.read_without(number, TOLD)) is not None]
    _copy(fates, mended, target)
    target.execute("DELETE FROM fate WHERE number NOT IN (SELECT number FROM job)")
    notes = left_out = 0
    for note in _notes(source):
        if note is None:
            left_out += 1
        elif note[0] != AUTHOR:
            target.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", note)
            notes += 1
    return Recovered(
        jobs=target.execute("SELECT count(*) FROM job").get,
        fates=target.execute("SELECT count(*) FROM fate").get,
        notes=notes,
        left_out=left_out + len(jobs.unread),
        untold=_count(target, "fate", [row[0] for row in mended]),
        as_submitted=_count(target, "job", fates.unread) - _count(target, "fate", fates.unread),
        places=jobs.places + fates.places,
        damaged=away,
    )


def _copy(table: Table, rows: Iterable[Row], target: apsw.Connection) -> None:
    marks = ", ".join("?" for _ in table.columns)
    insert = f"INSERT OR IGNORE INTO {table.name}({', '.join(table.columns)}) VALUES ({marks})"  # noqa: S608
    rest = iter(rows)
    while some := list(islice(rest, ROWS_A_COMMIT)):
        with target:
            target.executemany(insert, some)


def _count(target: apsw.Connection, table: str, numbers: Iterable[object]) -> int:
    """How many of them are there."""
    query = f"SELECT count(*) FROM {table} WHERE number IN (SELECT value FROM json_each(?))"  # noqa: S608
    count: int = target.execute(query, (json.dumps(list(numbers)),)).get
    return count
