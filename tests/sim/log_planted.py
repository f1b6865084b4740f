"""Likely bugs of shard logs, planted on purpose: a simulation that misses one is too weak.

Each replaces a class for one run; nothing in `src` is changed. The prototype of the cluster had two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from dragoman.cluster import direct_batch, log, log_io, log_reader, nats_client
from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.epochs import EpochRule, Verdict
from dragoman.cluster.jetstream import StoredMessage
from dragoman.cluster.log_reader import LogReader
from dragoman.cluster.log_records import Claim, Commit, LogRecord, encode_record
from dragoman.cluster.log_writer import Confirmed, Flight, LogWriter
from dragoman.cluster.requests import Answer, Done, Requests

VOID = encode_record(Commit(0, 0, [], True, b""))


class HastyWriter(LogWriter):
    """Counts a batch as saved when it is sent, and not when it is in the log (against R114)."""

    def _commit_flight(self) -> Flight:
        flight = super()._commit_flight()
        for ticket, _ in flight.tickets:
            self._events.saved(ticket, self.last + 1, self.last + 1, 0.0)
        flight.tickets = []
        return flight

    def _record(self, flight: Flight, now: float) -> LogRecord:
        record = super()._record(flight, now)
        if isinstance(record, Commit) and record.is_last:
            count = len(log_reader.read_batches(b"".join(flight.fragments))) if len(flight.fragments) == 1 else 0
            return Commit(record.epoch, record.number, [0.0] * count, True, record.body)
        return record


class BelievingRule(EpochRule):
    """Every commit counts that is in the log, whoever wrote it: the expected sequence is trusted to fence."""

    def judge(self, sequence: int, record: LogRecord) -> Verdict:
        if isinstance(record, Claim):
            return super().judge(sequence, record)
        return Verdict.COUNTS if isinstance(record, Commit) else Verdict.RELEASED


class TrustingWriter(LogWriter):
    """Confirms at once that the shard is ours, because nobody has said otherwise (against R241)."""

    def confirm(self, done: Confirmed, now: float) -> None:
        done(now)


class JoiningWriter(LogWriter):
    """Takes an append for a proof that was sent before the question came (against R241)."""

    def confirm(self, done: Confirmed, now: float) -> None:
        if self._flight is not None:
            self._flight.confirms.append(done)
        else:
            super().confirm(done, now)


class BlindReader(LogReader):
    """Does not look at gaps in the sequences (against R116)."""

    def _answered(self, batch: DirectBatch, now: float) -> None:
        """Fill each gap with a message that does not count, so that no gap is found."""
        filled: list[StoredMessage] = []
        for message in batch.messages:
            while filled and filled[-1].sequence + 1 < message.sequence:
                last = filled[-1]
                filled.append(StoredMessage(last.sequence + 1, last.subject, last.time, VOID))
            filled.append(message)
        if filled and filled[0].sequence > self._next > self._first:
            self._next = filled[0].sequence
        batch.messages = filled
        super()._answered(batch, now)


class BlindBatch(DirectBatch):
    """Does not look at the numbers and streams that the replies of a batch name."""

    __slots__ = ()

    def _take(self, answer: Answer) -> None:
        sequence, time = answer.headers.number(direct_batch.SEQUENCE), 0
        if sequence is None:
            self._end("no sequence")
        else:
            self._add(answer, sequence, time)

    def _end_in_order(self, answer: Answer) -> None:
        self._end("")


class OneInbox(Requests):
    """All requests have one subject for replies: those of two readers mix (the prototype "lost" 4,000 jobs so)."""

    def begin(self, done: Done, timeout: float, now: float) -> bytes | None:
        made = super().begin(self._for_all(done), timeout, now)
        return None if made is None else self._prefix + b"0"

    def _for_all(self, done: Done) -> Done:
        return done

    def receive(self, subject: Any, headers: Any, payload: Any, now: float) -> None:
        for number in list(self._pending)[:1]:
            super().receive(self._prefix + number, headers, payload, now)


@contextmanager
def no_doubt() -> Iterator[None]:
    """A log that ends too early is taken for a loss at once, although a stale leader answered."""
    with patch.object(log, "DOUBT", 0.0):
        yield


@contextmanager
def hasty() -> Iterator[None]:
    with patch.object(log, "LogWriter", HastyWriter):
        yield


@contextmanager
def believing() -> Iterator[None]:
    with patch.object(log_reader, "EpochRule", BelievingRule):
        yield


@contextmanager
def trusting() -> Iterator[None]:
    with patch.object(log, "LogWriter", TrustingWriter):
        yield


@contextmanager
def joining() -> Iterator[None]:
    with patch.object(log, "LogWriter", JoiningWriter):
        yield


@contextmanager
def blind() -> Iterator[None]:
    with patch.object(log, "LogReader", BlindReader), patch.object(log_io, "DirectBatch", BlindBatch):
        yield


@contextmanager
def one_inbox() -> Iterator[None]:
    with patch.object(nats_client, "Requests", OneInbox), patch.object(log_io, "DirectBatch", BlindBatch):
        yield


# Name, what is put in, the letters by which the oracle should find it, and the seed from which on it is looked for.
BUGS = (
    ("a write is acknowledged before its commit", hasty, ("C1",), 0),
    ("no epoch rule", believing, ("R114", "C2"), 40),
    ("gaps in sequences are ignored", blind, ("C2", "R114"), 10),
    ("one inbox for all readers", one_inbox, ("C2", "R114", "R116", "C1"), 0),
    ("a stale leader is believed", no_doubt, ("R116",), 1300),
    ("a denial without a proof", trusting, ("R241",), 0),
    ("an append from before the question is a proof", joining, ("R241",), 89),
)
