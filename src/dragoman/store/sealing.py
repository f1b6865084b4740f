"""Adds checksums to the rows of a file that was written before rows had any.

That takes a while for millions of rows, and is done in batches. Each batch is one transaction that also stores its
progress, so that a killed process continues from there.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import apsw

from dragoman.store import checksums
from dragoman.store.errors import InvalidRow
from dragoman.store.rows import JOB_COLUMNS, STATUS_COLUMNS, Row
from dragoman.store.statements import read_note, write_note

UNSEALED = "unsealed"  # key of the progress: the current table, and the last number done
ROWS = 2_000
BYTES = 8 << 20
LOG_PAGES = 4_096  # a log of this length is merged
REPORT = 1.0  # seconds between progress reports

Progress = Callable[[int, int], None]  # rows done, and all rows; 0 if their number is not known

TABLES = {
    "job": (JOB_COLUMNS, checksums.JOB_SUMS, checksums.sealed_job),
    "fate": (STATUS_COLUMNS, checksums.STATUS_SUMS, checksums.sealed_status),
}
FIRST = "job 0"


def seal_all(connection: apsw.Connection, progress: Progress) -> None:
    """Continue at the stored progress, to the end of both tables. Without one there is nothing to do."""
    place = read_note(connection, UNSEALED)
    if place is None:
        return
    total = sum(connection.execute(f"SELECT count(*) FROM {table}").get for table in TABLES)  # noqa: S608
    done, reported = 0, monotonic()
    name, _, last = place.partition(" ")
    after = int(last)
    tables = list(TABLES)
    for table in tables[tables.index(name) :]:
        while rows := _read(connection, table, after):
            after = rows[-1][0]  # type: ignore[assignment]
            _write(connection, table, rows, f"{table} {after}")
            done += len(rows)
            if monotonic() - reported >= REPORT:
                reported = monotonic()
                progress(done, total)
            if connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0] >= LOG_PAGES:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        after = 0
    connection.execute("DELETE FROM note WHERE key = ?", (UNSEALED,))
    if done:
        progress(done, done)


def _read(connection: apsw.Connection, table: str, after: int) -> list[Row]:
    query = f"SELECT {', '.join(TABLES[table][0])} FROM {table} WHERE number > ? ORDER BY number"  # noqa: S608
    rows: list[Row] = []
    size = 0
    try:
        for row in connection.execute(query, (after,)):
            rows.append(row)
            size += sum(len(each) for each in row if isinstance(each, bytes))
            if len(rows) >= ROWS or size >= BYTES:
                break
    except UnicodeDecodeError as error:
        raise InvalidRow(f"table {table}: a row after number {after} has invalid text: {error.reason}") from error
    return rows


def _write(connection: apsw.Connection, table: str, rows: list[Row], place: str) -> None:
    _, names, seal = TABLES[table]
    update = f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in names)} WHERE number = ?"  # noqa: S608
    with connection:
        connection.executemany(update, [(*_sums(seal, row, len(names)), row[0]) for row in rows])
        write_note(connection, UNSEALED, place)


def _sums(seal: Callable[[Row], Row], row: Row, count: int) -> Row:
    """Return the checksums. An invalid row gets none, and is detected when it is read."""
    try:
        return seal(row)[-count:]
    except checksums.PACK_ERRORS:
        return (None,) * count
