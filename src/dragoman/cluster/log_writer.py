"""The writer of a shard's log: claims it, appends commits one at a time, and finds out when another broker has it.

One append is in flight. What is added meanwhile is the next commit. An append is confirmed in two ways: the server
acknowledged it at the place that was expected, or it was read there. Without an answer the same message is sent again
with the same expected sequence, for as long as it takes: no answer says nothing.

    answer                          next
    stored at the expected place    confirmed
    stored elsewhere, or refused    read the message at the expected place:
    because of the sequence             ours                      confirmed
                                        a claim of another        fenced: the shard is lost, nothing more is confirmed
                                        void                      expect the sequence after it, and go on
                                        none                      send again; fenced if the log begins later: only
                                                                  another owner can have purged what we had not seen
    none                            send again
    another error                   note it as `problem`, and send again later

**Confirmation.** An append that was sent after a question came, and that is in the log, proves that the shard was ours
when the question came (`confirm`): no broker had claimed it before. If nothing is to be written, an empty commit is the
proof, at most one every `CONFIRM_EVERY`. A question to the leader would be no proof: one that was cut off from the
others answers as it was. An append that was sent before proves nothing, also if it is sent again.

A writer that has not claimed yet does not skip what it finds: somebody else writes, so its claim is lost. A writer that
never hears of a newer claim cannot do harm: its appends do not fit, and those that do are void (`epochs.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import mypyc_attr

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.jetstream import ApiError, Append, AppendOutcome, StoredMessage, StreamState
from dragoman.cluster.log_io import LogIO
from dragoman.cluster.log_records import Claim, Commit, LogRecord, Release, encode_batches, encode_record, read_record
from dragoman.core.infinity import inf

MAX_BATCHES: Final = 500  # in one commit
MAX_COMMIT: Final = 512 * 1024  # bytes; a single batch may be larger
OVERHEAD: Final = 64  # bytes of a commit besides its body and ages
AGE_BYTES: Final = 9  # of one age
FIRST_PAUSE: Final = 0.05  # seconds before an append is sent again; doubles up to the next
LONGEST_PAUSE: Final = 1.0
CONFIRM_EVERY: Final = 0.05  # seconds between two empty commits

Confirmed = Callable[[float], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class LogEvents:
    """Receives the progress of a log."""

    def claimed(self, epoch: int, now: float) -> None:
        """The claim is in the log. Also after a renewal."""
        raise NotImplementedError

    def saved(self, ticket: int, first: int, last: int, now: float) -> None:
        """The batch with this ticket is in the log, in the messages from `first` to `last`. Tickets come in order."""
        raise NotImplementedError

    def released(self, now: float) -> None:
        """The release is in the log, and everything before it."""
        raise NotImplementedError

    def lost(self, reason: str, now: float) -> None:
        """Another broker has the shard. Nothing more is saved; batches without `saved` may count or not."""
        raise NotImplementedError


@final
class Flight:
    """Messages that are being appended: a claim, a release, or a commit in one or several fragments."""

    __slots__ = ("claim", "confirms", "first", "fragments", "is_release", "sent", "tickets")

    def __init__(self, *, claim: Claim | None = None, is_release: bool = False) -> None:
        self.claim = claim
        self.is_release = is_release
        self.fragments: deque[bytes] = deque()
        self.tickets: list[tuple[int, float]] = []  # ticket, and the time at which its batch was made
        self.first = 0  # sequence of the first fragment; 0: not confirmed yet
        self.sent = 0  # number of the last try
        self.confirms: list[Confirmed] = []  # those that came before the first try


class LogWriter:
    """Writes as one broker, from its claim on until it is fenced or has released the shard."""

    def __init__(self, io: LogIO, events: LogEvents, last: int) -> None:
        """`last`: the sequence after which the claim is to be appended."""
        self.last = last  # sequence of the last message that was confirmed or skipped
        self.epoch = 0  # of our claim; 0: not claimed yet
        self.number = 0  # of the last commit of our epoch
        self.is_over = False  # fenced, or released
        self.problem = ""  # reason why appends wait; empty: none is known
        self.waiting_since = inf  # time since which the append in flight has waited
        self.voids = 0  # void messages of others that were skipped
        self.empty = 0  # empty commits that were made
        self._io = io
        self._events = events
        self._flight: Flight | None = None
        self._queue: deque[tuple[int, bytes, float]] = deque()
        self._renewal: Claim | None = None  # to be appended after the flight
        self._is_releasing = False
        self._tries = 0
        self._pause = FIRST_PAUSE
        self._retry_at = inf
        self._unconfirmed: list[Confirmed] = []  # to be called when a later append is in the log
        self._confirm_at = -inf  # time of the next empty commit, if any is needed

    @property
    def is_idle(self) -> bool:
        """True if nothing waits to be written."""
        return self._flight is None and not self._queue and self._renewal is None and not self._is_releasing

    # ---------------------------------------------------------------- calls of the owner

    def claim(self, claim: Claim, now: float) -> None:
        """Claim the shard; or renew the claim, with a new epoch, before the batches that wait."""
        assert not self.is_over
        assert self._renewal is None, "a claim is on its way"
        self._renewal = claim
        self._go(now)

    def add(self, ticket: int, batch: bytes, now: float) -> None:
        """Write a batch. Tickets rise."""
        if self.is_over:
            return  # it is never saved
        assert not self._is_releasing, "the shard is being released"
        self._queue.append((ticket, batch, now))
        self._go(now)

    def confirm(self, done: Confirmed, now: float) -> None:
        """Prove that the shard is ours now: `done` is called when something is in the log that was sent after this
        call. It is never called if the shard is lost."""
        if not self.is_over:
            self._unconfirmed.append(done)
            self._go(now)

    def release(self, now: float) -> None:
        """Write what was added, and then the release."""
        if not self.is_over:
            self._is_releasing = True
            self._go(now)

    def abandon(self) -> None:
        """Write nothing more: the shard is given up without a word."""
        self.is_over = True
        self._flight = None
        self._queue.clear()
        self._unconfirmed.clear()
        self._renewal = None
        self._is_releasing = False
        self._retry_at = inf

    @property
    def tries(self) -> int:
        """Number of appends that were sent. An answer about the log is old if one was sent after the question."""
        return self._tries

    def verify(self, found: StreamState, tries: int, now: float) -> None:
        """Look if the shard is still ours, because nothing was written for a while. `lost` follows if it is not.
        `tries`: when the question was sent."""
        if self.is_idle and not self.is_over and self._tries == tries:
            self._inspected(found, now)

    def _inspected(self, found: StreamState, now: float) -> None:
        if found.first > self.last + 1:
            self._lose("another broker has cleaned the log", now)
        elif found.last > self.last:
            self._read(None, self.last + 1, now)

    def tick(self, now: float) -> float:
        """Send again what is due. Returns the time of the next call."""
        if now >= self._retry_at:
            self._retry_at = inf
            self._send(now)
        if self._unconfirmed:
            self._go(now)
        return min(self._retry_at, self._confirm_due())

    def _confirm_due(self) -> float:
        """Return the time of the next empty commit."""
        return self._confirm_at if self._unconfirmed and self._flight is None else inf

    # ---------------------------------------------------------------- flights

    def _go(self, now: float) -> None:
        """Begin the next flight, if none is under way."""
        if self._flight is not None or self.is_over:
            return
        self._flight = flight = self._next_flight(now)
        if flight is not None:
            flight.confirms, self._unconfirmed = self._unconfirmed, []
            self.waiting_since = now
            self._send(now)

    def _next_flight(self, now: float) -> Flight | None:
        """Return the next flight: a claim, then batches that were added, then the release. If there is none, and a
        proof is wanted, an empty commit."""
        if self._renewal is not None:
            claim, self._renewal = self._renewal, None
            return Flight(claim=claim)
        if self._queue and self.epoch:
            return self._commit_flight()
        if self._is_releasing and self.epoch:
            self._is_releasing = False
            return Flight(is_release=True)
        if self._unconfirmed and self.epoch and now >= self._confirm_at:
            self._confirm_at = now + CONFIRM_EVERY
            self.empty += 1
            return self._commit_flight()
        return None

    def _commit_flight(self) -> Flight:
        flight = Flight()
        most = min(MAX_COMMIT, self._io.max_message)
        batches: list[bytes] = []
        size = 0
        while self._queue and len(batches) < MAX_BATCHES:
            ticket, batch, made = self._queue[0]
            if batches and size + len(batch) > most:
                break
            self._queue.popleft()
            batches.append(batch)
            flight.tickets.append((ticket, made))
            size += len(batch) + AGE_BYTES
        body = encode_batches(batches)
        room = max(1, self._io.max_message - OVERHEAD - AGE_BYTES * len(batches))
        flight.fragments.extend([body[start : start + room] for start in range(0, len(body), room)])
        return flight

    def _send(self, now: float) -> None:
        flight = self._flight
        if flight is None:
            return
        self._tries += 1
        flight.sent = tried = self._tries
        payload = encode_record(self._record(flight, now))

        def answered(answer: Append, then: float) -> None:
            self._answered(tried, answer, then)

        self._io.append(payload, self.last, answered, now)

    def _record(self, flight: Flight, now: float) -> LogRecord:
        if flight.claim is not None:
            return flight.claim
        if flight.is_release:
            return Release(self.epoch, self.number + 1)
        is_last = len(flight.fragments) == 1
        ages = [now - made for _, made in flight.tickets] if is_last else []
        return Commit(self.epoch, self.number + 1, ages, is_last, flight.fragments[0])

    def _answered(self, tried: int, answer: Append, now: float) -> None:
        flight = self._flight
        if flight is None or flight.sent != tried or self.is_over:
            return
        outcome = answer.outcome
        is_behind = 0 < answer.sequence <= self.last
        if outcome is AppendOutcome.STORED and answer.sequence == self.last + 1:
            self._confirmed(flight, answer.sequence, now)
        elif outcome in (AppendOutcome.STORED, AppendOutcome.WRONG_SEQUENCE) and not is_behind:
            self._look(self.last + 1, now)
        elif is_behind:
            # A leader that does not know yet that it is none any more; or the log has lost what it had acknowledged.
            self._wait(f"the log answers as if it ended with {answer.sequence}; {self.last} was stored before", now)
        elif outcome is AppendOutcome.REFUSED and answer.error is not None:
            self._wait(answer.error.description, now)
        else:
            self._wait("", now)

    def _wait(self, problem: str, now: float) -> None:
        """Send again later."""
        self.problem = problem
        self._retry_at = now + self._pause
        self._pause = min(2.0 * self._pause, LONGEST_PAUSE)

    def _confirmed(self, flight: Flight, sequence: int, now: float) -> None:
        """A message of the flight is in the log."""
        self.last = sequence
        self.problem = ""
        self._pause = FIRST_PAUSE
        self._retry_at = inf
        flight.first = flight.first or sequence
        if flight.claim is None:
            self.number += 1
            if not flight.is_release:
                flight.fragments.popleft()
                if flight.fragments:
                    self._send(now)
                    return
        self._flight = None
        self.waiting_since = inf
        self._tell(flight, sequence, now)
        self._go(now)

    def _tell(self, flight: Flight, sequence: int, now: float) -> None:
        if flight.claim is not None:
            self.epoch = sequence
            self.number = 0
            self._events.claimed(sequence, now)
        elif flight.is_release:
            self.abandon()
            self._events.released(now)
        else:
            for ticket, _ in flight.tickets:
                self._events.saved(ticket, flight.first, sequence, now)
        for done in flight.confirms:
            done(now)

    # ---------------------------------------------------------------- another message is in the expected place

    def _look(self, sequence: int, now: float, *, has_skipped: bool = False) -> None:
        """Read the message at a sequence, and decide. `has_skipped`: the one before it was void."""
        flight = self._flight
        assert flight is not None
        self._read(flight, sequence, now, has_skipped=has_skipped)

    def _read(self, flight: Flight | None, sequence: int, now: float, *, has_skipped: bool = False) -> None:
        """Read a message. The answer is dropped if something else was sent meanwhile."""
        tries = self._tries

        def found(message: StoredMessage | ApiError | None, then: float) -> None:
            if self._flight is not flight or self._tries != tries or self.is_over:
                return
            if isinstance(message, StoredMessage):
                self._found(flight, sequence, message, then)
            elif flight is None:
                pass
            elif message is None and has_skipped:
                self._send(then)
            elif message is None:
                self._missing(flight, then)
            else:
                self._wait(message.description, then)

        self._io.get(sequence, found, now)

    def _missing(self, flight: Flight, now: float) -> None:
        """Nothing is at the expected place: the leader is behind; or another owner has purged it."""
        tries = self._tries

        def inspected(found: StreamState | ApiError, then: float) -> None:
            if self._flight is not flight or self._tries != tries or self.is_over:
                return
            if isinstance(found, StreamState) and found.first > self.last + 1:
                self._lose("another broker has cleaned the log", then)
            else:
                self._wait("", then)

        self._io.inspect(inspected, now)

    def _found(self, flight: Flight | None, sequence: int, message: StoredMessage, now: float) -> None:
        assert message.sequence == sequence, "the log returned another message"
        try:
            record = read_record(message.payload)
        except Malformed as problem:
            self._lose(f"message {sequence} of the log cannot be read: {problem.detail}", now)
            return
        if flight is not None and self._is_ours(flight, record):
            self._confirmed(flight, sequence, now)
        elif isinstance(record, Claim):
            self._lose(f"{record.broker} has claimed the shard", now)
        elif not self.epoch:
            self._lose("its owner still writes", now)
        else:
            self.voids += 1
            self.last = sequence
            self._read(flight, sequence + 1, now, has_skipped=True)

    def _is_ours(self, flight: Flight, record: LogRecord) -> bool:
        if isinstance(record, Claim):
            return flight.claim is not None and record.nonce == flight.claim.nonce
        if flight.claim is not None or record.epoch != self.epoch or record.number != self.number + 1:
            return False
        return isinstance(record, Release) == flight.is_release

    def _lose(self, reason: str, now: float) -> None:
        self.abandon()
        self._events.lost(reason, now)
