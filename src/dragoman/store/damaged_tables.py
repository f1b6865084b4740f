"""Tables of a store that may be damaged: the readable rows, and the numbers of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import apsw

from dragoman.core.model import JobId
from dragoman.core.options import JobOptions
from dragoman.core.restore import StoredJob
from dragoman.store import checksums
from dragoman.store.checksums import RESULT
from dragoman.store.errors import InvalidRow, StoreCorrupted
from dragoman.store.rows import JOB_COLUMNS, PAYLOAD, STATUS_COLUMNS, Row, RowDecoder
from dragoman.store.salvage import Salvage
from dragoman.store.sealing import UNSEALED
from dragoman.store.statements import read_note

# Columns that older files do not have, and their values there.
SINCE = {
    "owner": "NULL",
    "extras": "NULL",
    "may_return": "0",
    "head_sum": "NULL",
    "told_sum": "NULL",
    "body_sum": "NULL",
}
NO_INFO = -1  # replaces the checksum of informative columns that were lost


class Table:
    """The valid rows of a table. After the iteration it has the numbers of the others."""

    def __init__(
        self, source: apsw.Connection, path: Path, name: str, columns: tuple[str, ...], read: Callable[[Row], None]
    ) -> None:
        """`read` raises InvalidRow."""
        self.name = name
        self.columns = columns
        self._source = source
        self._read = read
        self._columns = columns_of(source, name)
        self._salvage = Salvage(source, path, name, self._wanted({}))
        self._invalid: list[int] = []

    def __iter__(self) -> Iterator[Row]:
        for row in self._salvage:
            if self._is_valid(row):
                yield row
            else:
                self._invalid.append(row[0])  # type: ignore[arg-type]

    @property
    def unread(self) -> list[int]:
        """Numbers of rows that exist, but cannot be read or are invalid."""
        return self._salvage.lost + self._invalid

    @property
    def places(self) -> int:
        return self._salvage.places

    def read_without(self, number: int, instead: dict[str, str]) -> Row | None:
        """Read one row, with other expressions in place of some columns."""
        query = f"SELECT {self._wanted(instead)} FROM {self.name} WHERE number = ?"  # noqa: S608
        try:
            row = self._source.execute(query, (number,)).fetchone()
        except (apsw.Error, UnicodeDecodeError):
            return None
        return row if row is not None and self._is_valid(row) else None

    def _wanted(self, instead: dict[str, str]) -> str:
        return ", ".join(instead.get(name, name if name in self._columns else SINCE[name]) for name in self.columns)

    def _is_valid(self, row: Row) -> bool:
        try:
            self._read(row)
        except InvalidRow:
            return False
        return True


def job_table(source: apsw.Connection, path: Path, is_sealed: bool) -> Table:
    reader = RowDecoder()

    def read(row: Row) -> None:
        reader.job(row[:PAYLOAD], 0.0)
        if not isinstance(row[PAYLOAD], bytes):
            raise InvalidRow("its payload is not a blob")
        if is_sealed or row[-1] is not None:
            _require(checksums.fits_job(row[:-2], row[-2:]))

    return Table(source, path, "job", checksums.ALL_JOB_COLUMNS, read)


def status_table(source: apsw.Connection, path: Path, is_sealed: bool) -> Table:
    reader = RowDecoder()

    def read(row: Row) -> None:
        number, result = row[0], row[RESULT]
        assert isinstance(number, int)
        job = StoredJob(number, JobId(b""), "", JobOptions(), 0.0)
        reader.add_status(job, (*row[1:RESULT], *row[RESULT + 1 : -3]), 0.0)
        if result is not None and not isinstance(result, bytes):
            raise InvalidRow("its result is not a blob")
        if is_sealed or row[-1] is not None:
            _require(checksums.fits_status(row[:-3], row[-3:], with_info=row[-2] != NO_INFO))

    return Table(source, path, "fate", checksums.ALL_STATUS_COLUMNS, read)


def _require(is_whole: bool) -> None:
    if not is_whole:
        raise InvalidRow("it does not match its checksum")


def notes_of(source: apsw.Connection, is_sealed: bool) -> Iterator[tuple[str, str] | None]:
    """Yield the values. None for what cannot be read: one value, or all the rest."""
    sum = "sum" if is_sealed else "NULL"
    query = f"SELECT CAST(key AS BLOB), CAST(value AS BLOB), {sum} FROM note"  # noqa: S608 bytes need not make sense
    try:
        for key, value, sum in source.execute(query):
            try:
                note = key.decode(), value.decode()
            except (AttributeError, UnicodeDecodeError):
                yield None
                continue
            yield note if not is_sealed or checksums.note_sum(*note) == sum else None
    except apsw.Error:
        yield None


def is_sealed(source: apsw.Connection) -> bool:
    """True if every row must have its checksums: not in a file of an older format, or one that is being changed."""
    try:
        return "sum" in _known(source, "note") and read_note(source, UNSEALED) is None
    except (apsw.Error, UnicodeDecodeError):
        return True


def job_names(source: apsw.Connection, numbers: Iterable[int]) -> list[str]:
    """Return the ids of jobs, or their numbers if the id cannot be read."""
    names = []
    for number in sorted(numbers):
        try:
            id = source.execute("SELECT id FROM job WHERE number = ?", (number,)).get
        except (apsw.Error, UnicodeDecodeError):
            id = None
        names.append(f"job {id.hex()}" if isinstance(id, bytes) else f"job number {number}")
    return names


def _known(source: apsw.Connection, table: str) -> set[str]:
    try:
        return {row[1] for row in source.execute(f"PRAGMA table_info({table})")}
    except (apsw.Error, UnicodeDecodeError):
        return set()


def columns_of(source: apsw.Connection, table: str) -> set[str]:
    found = _known(source, table)
    missing = {*(JOB_COLUMNS if table == "job" else STATUS_COLUMNS)} - found - {*SINCE}
    if missing:
        raise StoreCorrupted(f"the table {table} has no {', '.join(sorted(missing))}")
    return found
