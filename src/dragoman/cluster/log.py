"""The log of one shard, as the broker that wants it or owns it uses it.

    IDLE         nothing is asked of it
    INSPECTING   the state of the stream is asked for; a stream that cannot be trusted raises an alarm (R116)
    CLAIMING     the claim is being appended
    READING      the claim is in the log; everything before it is read
    OWNED        commits are appended
    RELEASING    the release is being appended

A claim is never given up while its fate is unknown: it may be in the log and keep the earlier owner from writing. It
ends as ours, or because another message is in its place.

**Cleaning.** A log begins with a claim, so that its first commits can be judged. To clean it, the owner renews its
claim, writes all rows again that are still true and older than the renewed claim, and purges the log up to that claim
(R116). `renew` and `purge` are the two ends of this; the owner of the rows does the middle.

**Doubt.** A leader that was frozen or cut off answers as it was, until it learns that it is none any more: a log that
ends too early may be that, or a loss. So the alarm about it is raised only if it lasts for `DOUBT` seconds.

An owner looks at the log every `VERIFY_EVERY` seconds: another broker may have claimed it; or it is gone, or has lost
messages. An owner of such a log keeps its jobs, which nobody else has, and says so (`loss`). Nothing is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from mypy_extensions import mypyc_attr

from dragoman.cluster.jetstream import ApiError, StreamState
from dragoman.cluster.log_io import LogIO
from dragoman.cluster.log_reader import LogReader, ReadBatch, ReadEvents
from dragoman.cluster.log_records import Claim
from dragoman.cluster.log_writer import LogEvents, LogWriter
from dragoman.core.infinity import inf

IDENTITY: Final = "dragoman_identity"  # in the metadata of a stream: the identity of the cluster
FIRST_PAUSE: Final = 0.1  # seconds before an inspection is repeated; doubles up to the next
LONGEST_PAUSE: Final = 2.0
VERIFY_EVERY: Final = 10.0
DOUBT: Final = 30.0  # longer than a leader without a majority takes itself for one


class LogPhase(Enum):
    """State of a log at this broker."""

    IDLE = auto()
    INSPECTING = auto()
    CLAIMING = auto()
    READING = auto()
    OWNED = auto()
    RELEASING = auto()


@dataclass(frozen=True, slots=True)
class Expected:
    """Facts of a stream without which it is not used."""

    identity: str
    replicas: int


@mypyc_attr(allow_interpreted_subclasses=True)
class ShardEvents:
    """Receives what happens to the log of a shard."""

    def claimed(self, epoch: int, now: float) -> None:
        """The claim is in the log; reading begins. After `renew`: the mark for `purge`."""
        raise NotImplementedError

    def read(self, batches: list[ReadBatch], now: float) -> None:
        """Some more batches of the earlier owners, in order."""
        raise NotImplementedError

    def read_again(self, now: float) -> None:
        """Forget all batches that were read: they are read again."""
        raise NotImplementedError

    def owned(self, time: int, now: float) -> None:
        """Everything is read, and batches can be added. `time`: of the claim, nanoseconds by the server's clock."""
        raise NotImplementedError

    def saved(self, ticket: int, first: int, last: int, now: float) -> None:
        """A batch is in the log, in the messages from `first` to `last`."""
        raise NotImplementedError

    def measured(self, size: int) -> None:
        """The log has this size in bytes, with everything that was saved before."""

    def released(self, now: float) -> None:
        """The release is in the log."""
        raise NotImplementedError

    def lost(self, reason: str, now: float) -> None:
        """Another broker has the shard, or gets it; or the claim was refused because its owner still writes."""
        raise NotImplementedError

    def alarm(self, reason: str, now: float) -> None:
        """The log cannot be trusted. A person must look; it is not claimed."""
        raise NotImplementedError


class ShardLog:
    """The log of one shard at one broker."""

    def __init__(self, io: LogIO, events: ShardEvents, new_claim: Callable[[], Claim], expected: Expected) -> None:
        """`new_claim`: makes a claim with a nonce of its own."""
        self.phase = LogPhase.IDLE
        self.highest = 0  # the highest sequence that was ever heard of
        self.size = 0  # bytes, at the last inspection
        self.loss = ""  # the reason why the log cannot be written any more, while it is ours; empty: none
        self._io = io
        self._events = events
        self._new_claim = new_claim
        self._expected = expected
        self._voids = 0  # of writers that are over
        self._writer: LogWriter | None = None
        self._reader: LogReader | None = None
        self._first = 0  # sequence from which the log is read
        self._missing = 0  # sequence that was missing when it was read
        self._life = 0  # number of the claim; answers to earlier ones are dropped
        self._pause = FIRST_PAUSE
        self._retry_at = inf
        self._verify_at = inf
        self._doubt_since = inf  # time of the first answer that the log ends too early

    @property
    def epoch(self) -> int:
        """Our epoch; 0 if we have none."""
        return 0 if self._writer is None else self._writer.epoch

    @property
    def first(self) -> int:
        """Sequence of the first message, as it was read; after a purge of ours, of the mark."""
        return self._first

    @property
    def voids(self) -> int:
        """Messages that were found and did not count, in all epochs of ours."""
        return self._voids + (0 if self._writer is None else self._writer.voids)

    @property
    def empty(self) -> int:
        """Empty commits since the log was claimed, or cleaned."""
        return 0 if self._writer is None else self._writer.empty

    @property
    def writer(self) -> LogWriter | None:
        """The writer, for metrics."""
        return self._writer

    # ---------------------------------------------------------------- calls of the owner

    def claim(self, now: float) -> None:
        """Claim the shard. `owned`, `lost` or `alarm` follows."""
        assert self.phase is LogPhase.IDLE
        self._life += 1
        self.phase = LogPhase.INSPECTING
        self._inspect(now)

    def withdraw(self) -> bool:
        """Give up a claim of which nothing was appended. False: it may be in the log, and goes on."""
        if self.phase is not LogPhase.INSPECTING:
            return False
        self.abandon()
        return True

    def heard(self, sequence: int) -> None:
        """Note a sequence that the log has had: it never ends before it again."""
        self.highest = max(self.highest, sequence)

    def add(self, ticket: int, batch: bytes, now: float) -> None:
        """Write a batch. `saved` follows, unless the shard is lost."""
        if self._writer is not None:
            self._writer.add(ticket, batch, now)

    def verify(self, now: float) -> None:
        """Look now if the shard is still ours, for example after a reconnect. `lost` follows if it is not."""
        writer = self._writer
        if writer is None or self.phase is not LogPhase.OWNED:
            return
        self._verify_at = now + VERIFY_EVERY
        life, epoch, last, tries = self._life, writer.epoch, writer.last, writer.tries

        def inspected(found: StreamState | ApiError, then: float) -> None:
            if self._life == life:
                self._look_for_loss(found, epoch, last, then)
                if isinstance(found, StreamState):
                    self._events.measured(found.size)
                    writer.verify(found, tries, then)

        self._io.inspect(inspected, now)

    def confirm(self, done: Callable[[float], None], now: float) -> str:
        """Prove that the shard is ours now (`LogWriter.confirm`). `done` follows, unless the shard is lost. Returns the
        reason why nothing can be proved, or an empty text."""
        writer = self._writer
        if writer is None or self.phase is not LogPhase.OWNED:
            return "it is not at this broker"
        problem = self.loss or writer.problem
        if not problem:
            writer.confirm(done, now)
        return problem

    def _look_for_loss(self, found: StreamState | ApiError, epoch: int, last: int, now: float) -> None:
        """Notice a log that is gone, that ends before a message that was stored, or that begins after our claim. A
        stale leader may say so, too."""
        if isinstance(found, StreamState):
            reason = ""
            if found.last < last:
                reason = f"stream {found.name} ends with {found.last}, and has had {last}: it has lost messages"
            elif found.first > epoch:
                reason = f"stream {found.name} begins with {found.first}, after our claim {epoch}: it was purged"
        elif found.is_temporary:
            return
        else:
            reason = f"the log cannot be used: {found.description}"
        if not reason:
            self._doubt_since, self.loss = inf, ""
            return
        self._doubt_since = min(self._doubt_since, now)
        if now - self._doubt_since >= DOUBT:
            self.loss = reason

    def renew(self, now: float) -> None:
        """Append another claim of ours. `claimed` follows with the new epoch, up to which the log may be purged."""
        assert self.phase is LogPhase.OWNED
        assert self._writer is not None
        self._writer.claim(self._new_claim(), now)

    def purge(self, done: Callable[[int | ApiError, float], None], now: float) -> None:
        """Remove everything before our newest claim. Call it when all rows before it that are still true are saved
        behind it."""
        assert self.phase is LogPhase.OWNED
        self._first = self.epoch
        if self._writer is not None:
            self._writer.empty = 0
        self._io.purge(self.epoch, done, now)

    def release(self, now: float) -> None:
        """Write what was added, and the release. `released` follows, unless the shard is lost."""
        assert self.phase is LogPhase.OWNED
        assert self._writer is not None
        self.phase = LogPhase.RELEASING
        self._verify_at = inf
        self._writer.release(now)

    def abandon(self) -> None:
        """Stop at once, without a word in the log."""
        self._life += 1
        self.phase = LogPhase.IDLE
        self._retry_at = self._verify_at = self._doubt_since = inf
        self.loss = ""
        if self._writer is not None:
            self.heard(self._writer.last)
            self._voids += self._writer.voids
            self._writer.abandon()
            self._writer = None
        if self._reader is not None:
            self._reader.abandon()
            self._reader = None

    def tick(self, now: float) -> float:
        """Repeat what is due. Returns the time of the next call."""
        if now >= self._retry_at:
            self._retry_at = inf
            self._inspect(now)
        due = self._retry_at
        if self._writer is not None:
            due = min(due, self._writer.tick(now))
        if self._writer is not None and now >= self._verify_at:
            self.verify(now)
        due = min(due, self._verify_at)
        if self._reader is not None:
            due = min(due, self._reader.tick(now))
        return due

    # ---------------------------------------------------------------- the stream itself

    def _inspect(self, now: float) -> None:
        life = self._life

        def inspected(found: StreamState | ApiError, then: float) -> None:
            if self._life == life:
                self._inspected(found, then)

        self._io.inspect(inspected, now)

    def _inspected(self, found: StreamState | ApiError, now: float) -> None:
        if isinstance(found, ApiError):
            if not found.is_temporary:
                self._alarm(f"the log cannot be used: {found.description}", now)
                return
            self._inspect_later(now)
            return
        problem = self._distrust(found)
        if not problem and found.last < self.highest:
            self._doubt_since = min(self._doubt_since, now)
            if now - self._doubt_since < DOUBT:
                self._inspect_later(now)
                return
            problem = f"stream {found.name} ends with {found.last}, and has had {self.highest}: it has lost messages"
        self._doubt_since = inf
        self._pause = FIRST_PAUSE
        if problem:
            self._alarm(problem, now)
            return
        self.size = found.size
        if self.phase is LogPhase.READING:
            self._read_from(found.first, now)
            return
        self.heard(found.last)
        self._first = found.first
        self.phase = LogPhase.CLAIMING
        self._writer = LogWriter(self._io, _WriterEvents(self), found.last)
        self._writer.claim(self._new_claim(), now)

    def _inspect_later(self, now: float) -> None:
        self._retry_at = now + self._pause
        self._pause = min(2.0 * self._pause, LONGEST_PAUSE)

    def _distrust(self, found: StreamState) -> str:
        """Return the reason why a stream cannot be the log of this shard; empty: it can (R116)."""
        expected = self._expected
        identity = found.metadata.get(IDENTITY, "")
        if identity != expected.identity:
            return f"stream {found.name} belongs to {identity or 'no cluster'}, and not to {expected.identity}"
        if found.replicas < expected.replicas:
            return f"stream {found.name} has {found.replicas} replicas; {expected.replicas} are configured"
        if not (found.allows_direct and found.denies_delete):
            return f"stream {found.name} has other settings than `dragoman cluster init` gives it"
        if found.last and not found.messages:  # cleaning leaves the newest claim
            return f"stream {found.name} is empty, and has had {found.last} messages: somebody has purged it"
        return ""

    def _alarm(self, reason: str, now: float) -> None:
        self.abandon()
        self._events.alarm(reason, now)

    # ---------------------------------------------------------------- from the writer

    def _claimed(self, epoch: int, now: float) -> None:
        self._events.claimed(epoch, now)
        if self.phase is LogPhase.CLAIMING:
            self.phase = LogPhase.READING
            self._start_reading(now)

    def _start_reading(self, now: float) -> None:
        self._reader = LogReader(self._io, _ReaderEvents(self), self._first, self.epoch, self._expected.identity)
        self._reader.start(now)

    def _released(self, now: float) -> None:
        self.abandon()
        self._events.released(now)

    def _lost(self, reason: str, now: float) -> None:
        self.abandon()
        self._events.lost(reason, now)

    # ---------------------------------------------------------------- from the reader

    def _all_read(self, time: int, now: float) -> None:
        self._reader = None
        self.phase = LogPhase.OWNED
        self._verify_at = now + VERIFY_EVERY
        self._events.owned(time, now)

    def _gap(self, expected: int, found: int, now: float) -> None:
        """The earlier owner may have purged the log until it learned of our claim: then it begins later now."""
        self._reader = None
        self._missing = expected
        self._inspect(now)

    def _read_from(self, first: int, now: float) -> None:
        if first <= self._missing:
            self._alarm(f"message {self._missing} of the log is missing", now)
            return
        self._first = first
        self._events.read_again(now)
        self._start_reading(now)


class _WriterEvents(LogEvents):
    """Passes the events of a writer to its log. A writer that was abandoned has none."""

    def __init__(self, log: ShardLog) -> None:
        self._log = log

    def claimed(self, epoch: int, now: float) -> None:
        self._log._claimed(epoch, now)

    def saved(self, ticket: int, first: int, last: int, now: float) -> None:
        self._log._events.saved(ticket, first, last, now)

    def released(self, now: float) -> None:
        self._log._released(now)

    def lost(self, reason: str, now: float) -> None:
        self._log._lost(reason, now)


class _ReaderEvents(ReadEvents):
    """Passes the events of a reader to its log. A reader that was abandoned has none."""

    def __init__(self, log: ShardLog) -> None:
        self._log = log

    def read(self, batches: list[ReadBatch], now: float) -> None:
        self._log._events.read(batches, now)

    def all_read(self, time: int, now: float) -> None:
        self._log._all_read(time, now)

    def gap(self, expected: int, found: int, now: float) -> None:
        self._log._gap(expected, found, now)

    def unreadable(self, reason: str, now: float) -> None:
        self._log._alarm(reason, now)
