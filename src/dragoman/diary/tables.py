"""The statements: groups into tables, and rows out of them.

Every step of a statement gives the interpreter's lock away, and to get it back from a busy loop may take milliseconds.
So many rows go into one statement, and many come out of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain

import apsw

from dragoman.core.model import Payload
from dragoman.diary.group import Group
from dragoman.diary.records import FATE_COLUMNS, JOB_COLUMNS, PAYLOAD, Row

LARGE = 4_096  # bytes of a payload that is worth the while to drop before its job is erased
ROWS_A_STATEMENT = (256, 16, 1)

_JOB = ", ".join(f"job.{name}" for name in JOB_COLUMNS if name != "payload")
_FATE = ", ".join(f"fate.{name}" for name in FATE_COLUMNS if name not in ("number", "result"))
BATCH = f"""
SELECT {_JOB}, {_FATE} FROM job LEFT JOIN fate ON fate.number = job.number
WHERE job.number > ? AND job.number <= ? ORDER BY job.number LIMIT ?
"""  # noqa: S608
BODIES = """
SELECT job.payload, fate.result FROM job LEFT JOIN fate ON fate.number = job.number WHERE job.number = ?
"""
ADD_RETRIED = f"""
INSERT INTO job SELECT {", ".join("?" * PAYLOAD)}, payload FROM job WHERE number = ?
"""  # noqa: S608
DROP_PAYLOADS = f"""
UPDATE job SET payload = x'' WHERE number IN (SELECT value FROM json_each(?)) AND length(payload) > {LARGE}
"""  # noqa: S608


def _statements(head: str, width: int, tail: str) -> dict[int, str]:
    row = f"({', '.join('?' * width)})"
    return {rows: head + ", ".join([row] * rows) + tail for rows in ROWS_A_STATEMENT}


ADD_JOBS = _statements("INSERT INTO job VALUES ", len(JOB_COLUMNS), "")
# A fate of a job that was refused by a full disk before it ended otherwise is no longer of interest.
SET_FATES = _statements(
    "INSERT OR REPLACE INTO fate SELECT * FROM (VALUES ",
    len(FATE_COLUMNS),
    ") AS new WHERE EXISTS (SELECT 1 FROM job WHERE number = new.column1)",
)


def write(connection: apsw.Connection, group: Group) -> None:
    """All of it, in the transaction that is open."""
    execute = connection.execute
    if group.jobs:
        retried = [row for row in group.jobs if type(row[PAYLOAD]) is int]
        _write_rows(connection, ADD_JOBS, [row for row in group.jobs if row not in retried] if retried else group.jobs)
        for row in retried:
            execute(ADD_RETRIED, row)
    if group.fates:
        _write_rows(connection, SET_FATES, list(group.fates.values()))
        finished = group.finished()
        if finished:
            execute(DROP_PAYLOADS, (json.dumps(finished),))
    for key, value in group.notes.items():
        if value is None:
            execute("DELETE FROM note WHERE key = ?", (key,))
        else:
            execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (key, value))
    if group.erased:
        erased = json.dumps(list(group.erased))
        execute("DELETE FROM job WHERE number IN (SELECT value FROM json_each(?))", (erased,))
        execute("DELETE FROM fate WHERE number IN (SELECT value FROM json_each(?))", (erased,))


def _write_rows(connection: apsw.Connection, statements: dict[int, str], rows: Sequence[Row]) -> None:
    written = 0
    for size, statement in statements.items():
        while len(rows) - written >= size:
            some = rows[written : written + size]
            connection.execute(statement, tuple(chain.from_iterable(some)))
            written += size


def read_batch(connection: apsw.Connection, after: int, last: int, most: int) -> list[Row]:
    """Jobs with their fates, without their bodies, by rising number."""
    return connection.execute(BATCH, (after, last, most)).fetchall()


def read_bodies(connection: apsw.Connection, number: int) -> tuple[Payload, Payload]:
    row = connection.execute(BODIES, (number,)).fetchone()
    if row is None:
        return b"", b""
    payload, result = row
    return payload or b"", result or b""


def read_notes(connection: apsw.Connection) -> Iterator[tuple[str, str]]:
    yield from connection.execute("SELECT key, value FROM note")


def last_number(connection: apsw.Connection) -> int:
    return connection.execute("SELECT max(number) FROM job").get or 0


def used_bytes(connection: apsw.Connection) -> int:
    pages: int = connection.pragma("page_count") - connection.pragma("freelist_count")
    return pages * int(connection.pragma("page_size"))
