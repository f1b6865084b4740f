"""SQL statements: write commits, and read rows.

Every step of a statement releases the interpreter's lock, and getting it back from a busy loop may take milliseconds.
So one statement writes many rows, and one statement reads many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import apsw

from dragoman.core.model import Payload
from dragoman.store import checksums
from dragoman.store.commit import Commit
from dragoman.store.errors import InvalidRow
from dragoman.store.large_payloads import LARGE
from dragoman.store.rows import JOB_COLUMNS, PAYLOAD, STATUS_COLUMNS, Row

ROWS_A_STATEMENT: Final = (256, 128, 64, 32, 16, 8, 4, 2, 1)  # any number of rows takes a few statements

# Columns that are read at the start: all but the bodies.
HEAD: Final = tuple(name for name in JOB_COLUMNS if name != "payload")
STATUS: Final = tuple(name for name in STATUS_COLUMNS if name != "result")
_JOB: Final = ", ".join(f"job.{name}" for name in (*HEAD, "head_sum"))
_STATUS: Final = ", ".join(f"fate.{name}" for name in (*STATUS, "head_sum", "told_sum"))
BATCH: Final = f"""
SELECT {_JOB}, {_STATUS} FROM job LEFT JOIN fate ON fate.number = job.number
WHERE job.number > ? AND job.number <= ? ORDER BY job.number LIMIT ?
"""  # noqa: S608
BODIES: Final = """
SELECT job.id, job.payload, job.body_sum, fate.number, fate.result, fate.body_sum
FROM job LEFT JOIN fate ON fate.number = job.number WHERE job.number = ?
"""
# The checksum of an empty payload is the number.
DROP_PAYLOADS: Final = f"""
UPDATE job SET payload = x'', body_sum = number & {checksums.MASK}
WHERE number IN (SELECT value FROM json_each(?)) AND length(payload) > {LARGE}
"""  # noqa: S608


# The payload has its own checksum. The creation time is updated to the current offset of the wall clock.
SET_HEAD: Final = "UPDATE job SET wishes = ?, created = ?, key = ?, extras = ?, head_sum = ? WHERE number = ?"
SET_PAYLOAD: Final = "UPDATE job SET payload = ?, body_sum = ? WHERE number = ?"
OPTIONS: Final = JOB_COLUMNS.index("wishes")
CREATED: Final = JOB_COLUMNS.index("created")
KEY: Final = JOB_COLUMNS.index("key")
EXTRAS: Final = JOB_COLUMNS.index("extras")


def _statements(head: str, width: int, tail: str) -> dict[int, str]:
    row = f"({','.join('?' * width)})"  # without spaces: apsw caches no prepared statement of over 16 KiB
    return {rows: head + ",".join([row] * rows) + tail for rows in ROWS_A_STATEMENT}


# The columns are named: in a file that was upgraded, newer ones are behind the checksums.
_ADD: Final = f"INSERT INTO job({','.join(checksums.ALL_JOB_COLUMNS)}) VALUES "  # noqa: S608
ADD_JOBS: Final = _statements(_ADD, len(checksums.ALL_JOB_COLUMNS), "")
# The status of a job that was refused because of a full disk is not stored.
SET_STATUSES: Final = _statements(
    "INSERT OR REPLACE INTO fate SELECT * FROM (VALUES ",
    len(checksums.ALL_STATUS_COLUMNS),
    ") AS new WHERE EXISTS (SELECT 1 FROM job WHERE number = new.column1)",
)


def write(connection: apsw.Connection, group: Commit, dropped: list[int]) -> None:
    """Write a commit in the open transaction. `dropped`: jobs whose payload is dropped if it is large."""
    execute = connection.execute
    if group.jobs:
        _write_rows(connection, ADD_JOBS, _sealed_jobs(connection, group.jobs))
    for head in group.heads.values():
        number, created, job_options, key = head[0], head[CREATED], head[OPTIONS], head[KEY]
        execute(SET_HEAD, (job_options, created, key, head[EXTRAS], checksums.job_sums((*head, b""))[0], number))
    for changed, payload in group.payloads.items():
        execute(SET_PAYLOAD, (payload, checksums.body_sum(changed, payload), changed))
    if group.statuses:
        _write_rows(connection, SET_STATUSES, [checksums.sealed_status(row) for row in group.statuses.values()])
    if dropped:
        execute(DROP_PAYLOADS, (json.dumps(dropped),))
    for key, value in group.notes.items():
        if value is None:
            execute("DELETE FROM note WHERE key = ?", (key,))
        else:
            write_note(connection, key, value)
    if group.erased:
        erased = json.dumps(list(group.erased))
        execute("DELETE FROM job WHERE number IN (SELECT value FROM json_each(?))", (erased,))
        execute("DELETE FROM fate WHERE number IN (SELECT value FROM json_each(?))", (erased,))


def write_note(connection: apsw.Connection, key: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO note VALUES (?, ?, ?)", (key, value, checksums.note_sum(key, value)))


def _sealed_jobs(connection: apsw.Connection, rows: list[Row]) -> list[Row]:
    """Add checksums. A retried job may have the number of the first job in place of its payload."""
    sealed = []
    for row in rows:
        source = row[PAYLOAD]
        if type(source) is int:
            if not has_job(connection, source):
                continue
            row = (*row[:PAYLOAD], read_bodies(connection, source)[0])
        sealed.append(checksums.sealed_job(row))
    return sealed


def _write_rows(connection: apsw.Connection, statements: dict[int, str], rows: Sequence[Row]) -> None:
    written = 0
    for size, statement in statements.items():
        while len(rows) - written >= size:
            some = rows[written : written + size]
            connection.execute(statement, tuple(chain.from_iterable(some)))
            written += size


def read_batch(connection: apsw.Connection, after: int, last: int, most: int) -> list[Row]:
    """Return jobs with their statuses, without bodies, by rising number. Raises InvalidRow."""
    rows = connection.execute(BATCH, (after, last, most)).fetchall()
    return [_checked(row) for row in rows]


def _checked(row: Row) -> Row:
    """Return the columns without checksums, and without the status's number. Raises InvalidRow."""
    end = len(HEAD)
    status = row[end + 1 : -2]
    checksums.require_heads(row[:end], row[end], status, row[-2:])
    return row[:end] + status[1:]


def read_bodies(connection: apsw.Connection, number: int) -> tuple[Payload, Payload]:
    """Return a job's payload and result. Raises InvalidRow."""
    row = connection.execute(BODIES, (number,)).fetchone()
    if row is None:
        return b"", b""
    id, payload, payload_sum, status, result, result_sum = row
    if not checksums.is_body(number, payload, payload_sum):
        raise InvalidRow(f"the payload of job {id.hex()} does not match its checksum")
    if status is not None and not checksums.is_body(number, result, result_sum):
        raise InvalidRow(f"the result of job {id.hex()} does not match its checksum")
    return payload or b"", result or b""


def read_notes(connection: apsw.Connection) -> Iterator[tuple[str, str]]:
    """Yield all values with their keys. Raises InvalidRow."""
    for key, value, sum in connection.execute("SELECT key, value, sum FROM note"):
        if checksums.note_sum(key, value) != sum:
            raise InvalidRow(f"the value {key!r} does not match its checksum")
        yield key, value


def has_job(connection: apsw.Connection, number: int) -> bool:
    return connection.execute("SELECT 1 FROM job WHERE number = ?", (number,)).get is not None


def read_note(connection: apsw.Connection, key: str) -> str | None:
    value: str | None = connection.execute("SELECT value FROM note WHERE key = ?", (key,)).get
    return value


def last_number(connection: apsw.Connection) -> int:
    return connection.execute("SELECT max(number) FROM job").get or 0


def used_bytes(connection: apsw.Connection) -> int:
    pages: int = connection.pragma("page_count") - connection.pragma("freelist_count")
    return pages * int(connection.pragma("page_size"))
