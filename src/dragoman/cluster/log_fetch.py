"""Reads payloads and results that are only in the log, by the place of their commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.log_io import LogIO
from dragoman.cluster.log_records import Commit, read_batches, read_record
from dragoman.cluster.shard_image import Place
from dragoman.cluster.shard_rows import RESULT, Batch, read_batch
from dragoman.core.infinity import inf

READ_BYTES: Final = 1 << 20  # of one request
PAUSE: Final = 0.2  # seconds before a request is repeated
MOST_MESSAGES: Final = 1000

Fetched = Callable[[list[Batch], float], None]


@final
class Fetch:
    """Reads the batches of one commit. It tries until they are there, or until it is abandoned."""

    __slots__ = ("_done", "_io", "_last", "_messages", "_next", "is_over", "problem", "retry_at")

    def __init__(self, io: LogIO, place: Place, done: Fetched, now: float) -> None:
        self._io = io
        self._next, self._last = place
        self._done = done
        self._messages: list[Commit] = []
        self.is_over = False
        self.problem = ""
        self.retry_at = inf
        self._ask(now)

    def abandon(self) -> None:
        self.is_over = True
        self.retry_at = inf

    def tick(self, now: float) -> None:
        if now >= self.retry_at:
            self.retry_at = inf
            self._ask(now)

    def _ask(self, now: float) -> None:
        count = min(MOST_MESSAGES, self._last + 1 - self._next)
        self._io.batch(self._next, count, READ_BYTES, self._answered, now)

    def _answered(self, batch: DirectBatch, now: float) -> None:
        if self.is_over:
            return
        if batch.problem or not batch.messages or batch.messages[0].sequence != self._next:
            self.problem = batch.problem or f"message {self._next} of the log is not there"
            self.retry_at = now + PAUSE
            return
        for message in batch.messages:
            record = read_record(message.payload)
            if isinstance(record, Commit) and self._is_next(record):
                self._messages.append(record)
            self._next = message.sequence + 1
        if self._next <= self._last:
            self._ask(now)
            return
        self.is_over = True
        body = b"".join([each.body for each in self._messages])
        self._done([read_batch(each) for each in read_batches(body)], now)

    def _is_next(self, commit: Commit) -> bool:
        """True if this is the next fragment of the commit. Void messages may be between two."""
        if not self._messages:
            return True
        last = self._messages[-1]
        return commit.epoch == last.epoch and commit.number == last.number + 1


def payload_in(batches: list[Batch], id: bytes) -> bytes:
    """Return the last payload of a job in these batches. Raises Malformed."""
    found: bytes | None = None
    for batch in batches:
        for head, body in batch.jobs:
            if head[0] == id and body is not None:
                found = body
        for each, body in batch.payloads:
            if each == id:
                found = body
    if found is None:
        raise Malformed("bad rows", f"the payload of job {id.hex()} is not where it was written")
    return found


def result_in(batches: list[Batch], id: bytes) -> bytes:
    """Return the last result of a job in these batches. Raises Malformed."""
    found: bytes | None = None
    for batch in batches:
        for each, status, _ in batch.statuses:
            if each == id and status[RESULT - 1] is not None:
                found = status[RESULT - 1]
    if found is None:
        raise Malformed("bad rows", f"the result of job {id.hex()} is not where it was written")
    return found
