"""Rows of a shard's log: what one batch changes, and its encoding in MessagePack.

Rows are those of the store (`store/rows.py`) with two differences. Jobs are known by their id, because numbers of two
brokers collide. And times are relative to the moment at which the batch was made (`log_records.py`).

    jobs       head, payload     a new job; the payload is None if it is that of the job that this one retries
    heads      head              options or extras of a job have changed
    payloads   id, payload       a job has another payload
    statuses   id, status, holder
    notes      key, value        None: it is deleted
    erased     id

The *holder* of a running attempt is the run of the broker whose worker has it: `name.incarnation`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.records import UNREADABLE
from dragoman.core.model import ABSENT, Job, JobId, Payload
from dragoman.store.rows import STATUS_COLUMNS, Row, RowEncoder, status_row

RESULT: Final = STATUS_COLUMNS.index("result")  # of a status with the id in place of the number
HEAD_COLUMNS: Final = 9
RETRY_OF: Final = 6  # of a head, which begins with the id


class Batch(msgspec.Struct, array_like=True):
    """The changes of one batch, in the order of the fields."""

    jobs: list[tuple[list[Any], bytes | None]] = []
    heads: list[list[Any]] = []
    payloads: list[tuple[bytes, bytes]] = []
    statuses: list[tuple[bytes, list[Any], str]] = []
    notes: list[tuple[str, str | None]] = []
    erased: list[bytes] = []


_encoder: Final = msgspec.msgpack.Encoder()
_batch: Final = msgspec.msgpack.Decoder(Batch)


def read_batch(data: bytes) -> Batch:
    """Raises Malformed."""
    try:
        return _batch.decode(data)
    except UNREADABLE as error:
        raise Malformed("bad rows", str(error)) from None


class BatchWriter:
    """Collects the changes of one shard in one batch. `now`: the moment at which it is made."""

    __slots__ = ("_batch", "_now", "_rows")

    def __init__(self, rows: RowEncoder, now: float) -> None:
        self._rows = rows
        self._now = now
        self._batch = Batch([], [], [], [], [], [])

    def add_job(self, job: Job, payload: Payload | None = None) -> None:
        """Add a new job. `payload`: instead of the one in memory."""
        body = job.payload if payload is None else payload
        self._batch.jobs.append((self._head(job), None if body is ABSENT else bytes(body)))

    def add_head(self, job: Job) -> None:
        self._batch.heads.append(self._head(job))

    def add_payload(self, job: Job) -> None:
        self._batch.payloads.append((job.id, bytes(job.payload)))

    def add_status(self, job: Job, holder: str, result: Payload | None = None) -> None:
        """`result`: instead of the one in memory."""
        row = list(status_row(job, -self._now)[1:])
        if result is not None:
            row[RESULT - 1] = bytes(result) or None
        self._batch.statuses.append((job.id, row, holder))

    def add_note(self, key: str, value: str | None) -> None:
        self._batch.notes.append((key, value))

    def add_erased(self, id: JobId) -> None:
        self._batch.erased.append(id)

    def encode(self) -> bytes:
        return _encoder.encode(self._batch)

    def _head(self, job: Job) -> list[Any]:
        head: Row = self._rows.head(job, -self._now)
        return list(head[1:])
