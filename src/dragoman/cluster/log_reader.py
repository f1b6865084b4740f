"""The reader of a shard's log: all batches that count, from the first message up to the reader's own claim.

Any replica answers. One that lags behind has less, but nothing else: a replica that has the claim has all before it. So
the reader asks again until it has come to the claim. Sequences must have no gap, the first message must be a claim, and
every message must be readable; otherwise reading stops with a problem, and nothing of it may be used (R116).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.epochs import EpochRule, Verdict
from dragoman.cluster.jetstream import StoredMessage
from dragoman.cluster.log_io import LogIO
from dragoman.cluster.log_records import Claim, Commit, read_batches, read_record
from dragoman.core.infinity import inf

MESSAGES: Final = 1000  # of one request
READ_BYTES: Final = 1 << 20  # of one request; the event loop is not held up for longer than it takes to read these
FIRST_PAUSE: Final = 0.02  # seconds before a request is repeated; doubles up to the next
LONGEST_PAUSE: Final = 1.0
MAX_BODY: Final = 1 << 30  # bytes of one commit, joined from its fragments


@final
class ReadBatch:
    """A batch that counts. `made`: nanoseconds since 1970, by the clock of the server, at which it was made."""

    __slots__ = ("data", "first", "last", "made")

    def __init__(self, data: bytes, first: int, last: int, made: int) -> None:
        self.data = data
        self.first = first  # sequences of its messages
        self.last = last
        self.made = made


@mypyc_attr(allow_interpreted_subclasses=True)
class ReadEvents:
    """Receives what is read."""

    def read(self, batches: list[ReadBatch], now: float) -> None:
        """Some more batches that count, in order."""
        raise NotImplementedError

    def all_read(self, time: int, now: float) -> None:
        """The reader has come to its own claim, which the server stored at `time` (nanoseconds since 1970)."""
        raise NotImplementedError

    def gap(self, expected: int, found: int, now: float) -> None:
        """Messages are missing. They may have been purged meanwhile: the owner looks, and reads again or gives up."""
        raise NotImplementedError

    def unreadable(self, reason: str, now: float) -> None:
        """The log cannot be used."""
        raise NotImplementedError


class LogReader:
    """Reads a log once, up to the message `last`, which is our claim."""

    def __init__(self, io: LogIO, events: ReadEvents, first: int, last: int, identity: str) -> None:
        """`first`: sequence of the first message that the log keeps. `identity`: that all claims must have."""
        self.rule = EpochRule()
        self._io = io
        self._events = events
        self._next = self._first = first
        self._last = last
        self._identity = identity
        self._fragments: list[bytes] = []
        self._fragments_from = 0
        self._fragment_bytes = 0
        self._is_over = False
        self._pause = FIRST_PAUSE
        self._retry_at = inf

    @property
    def progress(self) -> float:
        """Part of the log that is read, from 0 to 1."""
        return (self._next - self._first) / (self._last + 1 - self._first)

    def start(self, now: float) -> None:
        self._ask(now)

    def abandon(self) -> None:
        self._is_over = True
        self._retry_at = inf

    def tick(self, now: float) -> float:
        """Repeat a request that is due. Returns the time of the next call."""
        if now >= self._retry_at:
            self._retry_at = inf
            self._ask(now)
        return self._retry_at

    def _ask(self, now: float) -> None:
        count = min(MESSAGES, self._last + 1 - self._next)
        self._io.batch(self._next, count, READ_BYTES, self._answered, now)

    def _answered(self, batch: DirectBatch, now: float) -> None:
        if self._is_over:
            return
        if batch.problem or not batch.messages:
            self._retry_at = now + self._pause
            self._pause = min(2.0 * self._pause, LONGEST_PAUSE)
            return
        self._pause = FIRST_PAUSE
        read: list[ReadBatch] = []
        for message in batch.messages:
            if message.sequence != self._next:
                self.abandon()
                self._events.gap(self._next, message.sequence, now)
                return
            try:
                self._take(message, read)
            except Malformed as problem:
                self.abandon()
                self._events.unreadable(f"message {message.sequence} of the log: {problem.detail}", now)
                return
            self._next += 1
            if message.sequence == self._last:
                self._finish(message, read, now)
                return
        if read:
            self._events.read(read, now)
        if not self._is_ended():
            self._ask(now)

    def _finish(self, claim: StoredMessage, read: list[ReadBatch], now: float) -> None:
        self.abandon()
        if self.rule.epoch != self._last:
            self._events.unreadable(f"message {self._last} of the log is not our claim", now)
            return
        if read:
            self._events.read(read, now)
        self._events.all_read(claim.time, now)

    def _is_ended(self) -> bool:
        return self._is_over

    def _take(self, message: StoredMessage, read: list[ReadBatch]) -> None:
        """Judge a message. Raises Malformed."""
        record = read_record(message.payload)
        if isinstance(record, Claim) and record.identity != self._identity:
            raise Malformed("other cluster", f"it is of the cluster {record.identity}, not of {self._identity}")
        if not self.rule.epoch and not isinstance(record, Claim):
            raise Malformed("no claim", "the log does not begin with a claim")
        verdict = self.rule.judge(message.sequence, record)
        if verdict is Verdict.CLAIM or verdict is Verdict.RELEASED:
            self._fragments = []  # of a commit that its owner did not finish
            self._fragment_bytes = 0
        elif verdict is Verdict.COUNTS:
            assert isinstance(record, Commit)
            self._join(message, record, read)

    def _join(self, message: StoredMessage, commit: Commit, read: list[ReadBatch]) -> None:
        if not self._fragments:
            self._fragments_from = message.sequence
        self._fragments.append(commit.body)
        self._fragment_bytes += len(commit.body)
        if self._fragment_bytes > MAX_BODY:
            raise Malformed("bad log record", f"a commit of over {MAX_BODY} bytes")
        if not commit.is_last:
            return
        batches = read_batches(b"".join(self._fragments))
        self._fragments = []
        self._fragment_bytes = 0
        if len(batches) != len(commit.ages):
            raise Malformed("bad log record", f"{len(batches)} batches and {len(commit.ages)} ages")
        for data, age in zip(batches, commit.ages, strict=True):
            made = message.time - int(age * 1e9)
            read.append(ReadBatch(data, self._fragments_from, message.sequence, made))
