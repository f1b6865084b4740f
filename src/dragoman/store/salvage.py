"""Reads a table of a damaged file, past unreadable parts.

SQLite reads from row to row until it meets damage, and does not know where the next row is. So this module searches the
pages for row numbers: the number of every readable row is in some page of the file or its log. Numbers of deleted rows
do no harm, because SQLite is queried for each number.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import apsw

from dragoman.store.rows import ID_BYTES, Row

LEAF = 0x0D  # the first byte of a page with rows in it
LEAF_HEADER = 8
LOG_HEADER = 32
FRAME_HEADER = 24
PAGES_A_READ = 256
MOST_VARINT = 9


class Salvage:
    """Readable rows of one table, in no certain order. After the iteration it has the numbers of unreadable rows."""

    def __init__(self, source: apsw.Connection, path: Path, table: str, columns: str) -> None:
        """`columns`: the selected columns, the row's number first."""
        self.lost: list[int] = []  # numbers of rows that exist, but cannot be read
        self.places = 0  # parts of the file that cannot be read, with an unknown number of rows
        self._source = source
        self._path = path
        self._table = table
        self._columns = columns
        self._seen: set[int] = set()

    def __iter__(self) -> Iterator[Row]:
        if (yield from self._read_on(1)):
            return
        for number in sorted(numbers_in(self._path)):
            if number not in self._seen and self._is_there(number):
                yield from self._read_on(number)
                if number not in self._seen:
                    self.lost.append(number)

    def _read_on(self, first: int) -> Generator[Row, None, bool]:
        """Read rows from this number on. True if the end was reached."""
        query = f"SELECT {self._columns} FROM {self._table} WHERE number >= ? ORDER BY number"  # noqa: S608
        last = first - 1
        try:
            for row in self._source.execute(query, (first,)):
                number = row[0]
                if number <= last:
                    self.places += 1  # rows are out of order
                    return False
                if number in self._seen:
                    return False
                self._seen.add(number)
                last = number
                yield row
        except (apsw.Error, UnicodeDecodeError):
            self.places += not self._is_one_row(last)
            return False
        return True

    def _is_one_row(self, before: int) -> bool:
        """True if only the row behind this one cannot be read, and not all that follow."""
        query = f"SELECT number FROM {self._table} WHERE number > ? ORDER BY number LIMIT 1"  # noqa: S608
        try:
            return self._source.execute(query, (before,)).get is not None
        except apsw.Error:
            return False

    def _is_there(self, number: int) -> bool:
        query = f"SELECT 1 FROM {self._table} WHERE number = ?"  # noqa: S608
        try:
            return self._source.execute(query, (number,)).get is not None
        except apsw.Error:
            return False


def numbers_in(path: Path) -> set[int]:
    """Return the numbers of all rows that are, or were, in this file or its log."""
    found: set[int] = set()
    for page in _pages(path):
        if page[0] == LEAF:
            found.update(_numbers_of(page))
    return found


def _pages(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        size = page_size_of(file.read(LEAF_HEADER + 10))
        file.seek(0)
        while some := file.read(PAGES_A_READ * size):
            yield from (some[at : at + size] for at in range(0, len(some), size))
    log = Path(f"{path}-wal")
    if log.exists():
        with open(log, "rb") as file:
            file.seek(LOG_HEADER)
            while len(frame := file.read(FRAME_HEADER + size)) > FRAME_HEADER:
                yield frame[FRAME_HEADER:]


def page_size_of(header: bytes) -> int:
    size = int.from_bytes(header[16:18], "big")
    return 65_536 if size == 1 else max(size, 512)


def _numbers_of(page: bytes) -> Iterator[int]:
    for cell in _cells_of(page):
        _, cell = _varint(page, cell)
        number, _ = _varint(page, cell)
        if 0 < number < 1 << 63:
            yield number


def jobs_in(page: bytes) -> dict[int, bytes]:
    """Return the numbers and ids of the jobs in a page of the job table. A record begins with its number, which is NULL
    there because the cell has it, and the id, a blob of 16 bytes."""
    found: dict[int, bytes] = {}
    if page[0] != LEAF:
        return found
    for at in _cells_of(page):
        _, at = _varint(page, at)
        number, record = _varint(page, at)
        header, at = _varint(page, record)
        kind, at = _varint(page, at)
        id_kind, _ = _varint(page, at)
        id = page[record + header : record + header + ID_BYTES]
        if kind == 0 and id_kind == 12 + 2 * ID_BYTES and len(id) == ID_BYTES and 0 < number < 1 << 63:
            found[number] = id
    return found


def _cells_of(page: bytes) -> Iterator[int]:
    count = int.from_bytes(page[3:5], "big")
    for at in range(LEAF_HEADER, min(LEAF_HEADER + 2 * count, len(page) - 1), 2):
        yield int.from_bytes(page[at : at + 2], "big")


def _varint(page: bytes, at: int) -> tuple[int, int]:
    """Return a number in SQLite's encoding, and the position after it."""
    value = 0
    for index in range(MOST_VARINT):
        if at >= len(page):
            return 0, at
        byte = page[at]
        at += 1
        if index == MOST_VARINT - 1:
            return value << 8 | byte, at
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, at
