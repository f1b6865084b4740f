"""Checksums of rows: computed when a row is written, compared whenever it is read.

Each is a CRC-32 over the columns and the row's number, so that a row under another number does not match either. A
payload or a result has its own checksum, because most rows are read without it. So have the columns of a status that
are only informative (history, worker, reason): if they are damaged, the outcome still counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final, cast
from zlib import crc32

from dragoman.store.errors import InvalidRow
from dragoman.store.rows import JOB_COLUMNS, STATUS_COLUMNS, Row

MASK: Final = 0xFFFF_FFFF
JOB_SUMS: Final = ("head_sum", "body_sum")
STATUS_SUMS: Final = ("head_sum", "told_sum", "body_sum")
ALL_JOB_COLUMNS: Final = JOB_COLUMNS + JOB_SUMS
ALL_STATUS_COLUMNS: Final = STATUS_COLUMNS + STATUS_SUMS
RESULT: Final = STATUS_COLUMNS.index("result")

Columns = Sequence[object]

_crc32: Final = crc32
_pack_job: Final = Struct("<qd").pack
_pack_status: Final = Struct("<qdddqqqqq").pack

# A damaged row may contain anything. A row that cannot be packed does not match its checksum.
PACK_ERRORS: Final = (StructError, TypeError, ValueError, AttributeError)


def job_sums(row: Columns) -> tuple[int, int]:
    """Return the checksums of the job and of its payload. `row`: JOB_COLUMNS."""
    job = cast("tuple[Any, ...]", row)
    number, id, service, job_options, created, key, digest, retry_of, owner, extras, payload = job
    head = _pack_job(number, created) + id + f"{service}\0{job_options}".encode()
    if key is not None or digest is not None or retry_of is not None:
        head += b"%b\0%b\0%b" % ((key or "").encode(), digest or b"", retry_of or b"")
    if owner is not None:  # else it is as before rows had owners
        head += b"\0by " + owner.encode()
    if extras is not None:
        head += b"\0with " + extras.encode()
    return _crc32(head), body_sum(number, payload)


def status_sums(row: Columns) -> tuple[int, int, int]:
    """Return the checksums of the columns that decide, of the informative columns, and of the result.

    `row`: STATUS_COLUMNS.
    """
    status = cast("tuple[Any, ...]", row)
    number, start_at, spent, deaths, history, token, attempt, given = status[:8]
    worker, outcome, reason, quarantined, keep_until, result, can_resume = status[8:]
    start, begun, end = start_at or 0.0, given or 0.0, keep_until or 0.0
    head = _pack_status(number, start, begun, end, spent, deaths, attempt or 0, quarantined, can_resume)
    if token is not None:
        head += token
    if outcome is not None:
        head += outcome.encode()
    info = number & MASK
    if history is not None or worker is not None or reason is not None:
        info = _crc32(f"{history}\0{worker}\0{reason}".encode(), info)
    return _crc32(head), info, body_sum(number, result)


def body_sum(number: int, body: bytes | bytearray | None) -> int:
    """Return the checksum of a body. For an empty one it is the number, which suits a payload that is dropped later."""
    return _crc32(body, number & MASK) if body else number & MASK


def note_sum(key: str, value: str) -> int:
    return _crc32(f"{key}\0{value}".encode())


# -------------------------------------------------------------------- rows with their checksums


def sealed_job(row: Row) -> Row:
    return row + job_sums(row)


def sealed_status(row: Row) -> Row:
    return row + status_sums(row)


# -------------------------------------------------------------------- comparing


def fits_job(row: Columns, sums: Columns) -> bool:
    return _computed(job_sums, row) == tuple(sums)


def fits_status(row: Columns, sums: Columns, *, with_info: bool = True) -> bool:
    """Compare a status with its checksums. `with_info`: include the informative columns."""
    head, info, body = _computed(status_sums, row) or (None, None, None)
    return (head, info if with_info else sums[1], body) == tuple(sums)


def is_body(number: int, body: object, sum: object) -> bool:
    return _computed(lambda row: (body_sum(number, cast("bytes | bytearray | None", row[0])),), (body,)) == (sum,)


def require_heads(job: Columns, job_sum: object, status: Columns, sums: Columns) -> None:
    """Compare rows that were read without their bodies. Raises InvalidRow.

    `status`: all NULL if there is none; `sums`: its first two checksums.
    """
    found = _computed(job_sums, (*job, b""))
    if found is None or found[0] != job_sum:
        raise InvalidRow(f"{_name(job)} does not match its checksum")
    if status[0] is None:
        return
    computed = _computed(status_sums, (*status[:RESULT], None, *status[RESULT:]))
    if computed is None or computed[:2] != tuple(sums) or status[0] != job[0]:
        raise InvalidRow(f"the status of {_name(job)} does not match its checksum")


def _computed(compute: Callable[[Columns], tuple[int, ...]], row: Columns) -> tuple[int, ...] | None:
    """Compute checksums. None: the row has columns of other types."""
    try:
        return compute(row)
    except PACK_ERRORS:
        return None


def _name(job: Columns) -> str:
    return f"job {job[1].hex()}" if isinstance(job[1], bytes) else f"job number {job[0]}"
