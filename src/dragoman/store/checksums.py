"""Checksums of rows: computed when a row is written, compared whenever it is read.

Each is a CRC-32 over the columns and the row's number, so that a row under another number does not match either. A
payload or a result has a checksum of its own, because most rows are read without it. So have the texts that only tell
about a fate (history, worker, reason): if they are damaged, the outcome still counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final, cast
from zlib import crc32

from dragoman.store.errors import InvalidRow
from dragoman.store.rows import FATE_COLUMNS, JOB_COLUMNS, Row

MASK: Final = 0xFFFF_FFFF
JOB_SUMS: Final = ("head_sum", "body_sum")
FATE_SUMS: Final = ("head_sum", "told_sum", "body_sum")
ALL_JOB_COLUMNS: Final = JOB_COLUMNS + JOB_SUMS
ALL_FATE_COLUMNS: Final = FATE_COLUMNS + FATE_SUMS
RESULT: Final = FATE_COLUMNS.index("result")

Columns = Sequence[object]

_crc32: Final = crc32
_pack_job: Final = Struct("<qd").pack
_pack_fate: Final = Struct("<qdddqqqqq").pack

# A damaged row may hold anything. A row that cannot even be packed does not match its checksum.
ODD: Final = (StructError, TypeError, ValueError, AttributeError)


def job_sums(row: Columns) -> tuple[int, int]:
    """`row`: JOB_COLUMNS. Returns the checksums of the job and of its payload."""
    number, id, service, job_options, created, key, digest, retry_of, payload = cast("tuple[Any, ...]", row)
    head = _pack_job(number, created) + id + f"{service}\0{job_options}".encode()
    if key is not None or digest is not None or retry_of is not None:
        head += b"%b\0%b\0%b" % ((key or "").encode(), digest or b"", retry_of or b"")
    return _crc32(head), body_sum(number, payload)


def fate_sums(row: Columns) -> tuple[int, int, int]:
    """`row`: FATE_COLUMNS. Returns the checksums of what decides, of what is only told, and of the result."""
    fate = cast("tuple[Any, ...]", row)
    number, start_at, spent, deaths, history, token, attempt, given = fate[:8]
    worker, outcome, reason, quarantined, keep_until, result, can_resume = fate[8:]
    start, begun, end = start_at or 0.0, given or 0.0, keep_until or 0.0
    head = _pack_fate(number, start, begun, end, spent, deaths, attempt or 0, quarantined, can_resume)
    if token is not None:
        head += token
    if outcome is not None:
        head += outcome.encode()
    told = number & MASK
    if history is not None or worker is not None or reason is not None:
        told = _crc32(f"{history}\0{worker}\0{reason}".encode(), told)
    return _crc32(head), told, body_sum(number, result)


def body_sum(number: int, body: bytes | bytearray | None) -> int:
    """Of an empty body it is the number itself: a payload that is dropped later needs no other."""
    return _crc32(body, number & MASK) if body else number & MASK


def note_sum(key: str, value: str) -> int:
    return _crc32(f"{key}\0{value}".encode())


# -------------------------------------------------------------------- rows with their checksums


def sealed_job(row: Row) -> Row:
    return row + job_sums(row)


def sealed_fate(row: Row) -> Row:
    return row + fate_sums(row)


# -------------------------------------------------------------------- comparing


def fits_job(row: Columns, sums: Columns) -> bool:
    return _computed(job_sums, row) == tuple(sums)


def fits_fate(row: Columns, sums: Columns, *, is_told: bool = True) -> bool:
    """`is_told`: compare also what is only told."""
    head, told, body = _computed(fate_sums, row) or (None, None, None)
    return (head, told if is_told else sums[1], body) == tuple(sums)


def is_body(number: int, body: object, sum: object) -> bool:
    return _computed(lambda row: (body_sum(number, cast("bytes | bytearray | None", row[0])),), (body,)) == (sum,)


def require_heads(job: Columns, job_sum: object, fate: Columns, sums: Columns) -> None:
    """Compare rows that were read without their bodies. Raises Unreadable.

    `fate`: all NULL if there is none; `sums`: the first two of it.
    """
    found = _computed(job_sums, (*job, b""))
    if found is None or found[0] != job_sum:
        raise InvalidRow(f"{_name(job)} does not match its checksum")
    if fate[0] is None:
        return
    computed = _computed(fate_sums, (*fate[:RESULT], None, *fate[RESULT:]))
    if computed is None or computed[:2] != tuple(sums) or fate[0] != job[0]:
        raise InvalidRow(f"what happened to {_name(job)} does not match its checksum")


def _computed(compute: Callable[[Columns], tuple[int, ...]], row: Columns) -> tuple[int, ...] | None:
    """None: the row is not even what checksums can be computed of."""
    try:
        return compute(row)
    except ODD:
        return None


def _name(job: Columns) -> str:
    return f"job {job[1].hex()}" if isinstance(job[1], bytes) else f"job number {job[0]}"
