"""The readable part of a damaged log: which of its messages count although others cannot be read.

`cluster/epochs.py` has the rule for a whole log: a commit counts if its epoch is that of the newest claim before it,
and its number is the next one. A *hole* is a place whose messages cannot be read. It may have had a claim: then later
messages name it as their epoch. It may have had commits: then the next number is higher, by at most the number of
messages in the hole. Everything else is as in a whole log. A commit in several messages counts only if all of them can
be read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, final

from dragoman.carriers.malformed import Malformed
from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.jetstream import StoredMessage
from dragoman.cluster.log_reader import MAX_BODY, MESSAGES, ReadBatch
from dragoman.cluster.log_records import Claim, Commit, LogRecord, Release, read_batches, read_record
from dragoman.transfer.damage import Damage
from dragoman.transfer.errors import TransferError

TRIES: Final = 8  # requests for a message that cannot be read: another replica may have it
UNANSWERED: Final = 15  # requests in a row without an answer
MISSING: Final = "missing"
CUT: Final = "a part of a commit whose other part cannot be read"

AskBatch = Callable[[int, int], Awaitable[DirectBatch]]  # first sequence, and number of messages


@final
class Entry:
    """A message of the log; or a hole, which has no record."""

    __slots__ = ("last", "reason", "record", "sequence", "time")

    def __init__(self, sequence: int, last: int, time: int, record: LogRecord | None, reason: str = "") -> None:
        self.sequence = sequence
        self.last = last  # of a hole
        self.time = time
        self.record = record
        self.reason = reason  # of a hole


async def read_entries(ask: AskBatch, first: int, last: int) -> list[Entry]:
    """Read all messages from `first` to `last`. Raises TransferError if nothing answers, or a later release wrote
    them."""
    entries: list[Entry] = []
    sequence, tries, silent = first, 0, 0
    while sequence <= last:
        batch = await ask(sequence, 1 if tries else min(MESSAGES, last + 1 - sequence))
        if batch.problem or not batch.messages:
            silent += 1
            if silent > UNANSWERED:
                raise TransferError(f"message {sequence} of the log: {batch.problem or 'no answer of JetStream'}")
            continue
        silent = 0
        for message in batch.messages:
            found = _entry_of(message, sequence)
            if found.record is None and tries < TRIES:
                tries += 1
                break
            tries = 0
            entries.append(found)
            if found.sequence < message.sequence:
                entries.append(_entry_of(message, message.sequence))
            sequence = message.sequence + 1
    return entries


def _entry_of(message: StoredMessage, expected: int) -> Entry:
    """Return the message, or the hole at the expected place. Raises TransferError."""
    if message.sequence != expected:
        return Entry(expected, message.sequence - 1, 0, None, MISSING)
    try:
        return Entry(expected, expected, message.time, read_record(message.payload))
    except Malformed as problem:
        if problem.reason == "other version":
            raise TransferError(f"message {expected} of the log: {problem.detail}") from None
        return Entry(expected, expected, 0, None, f"cannot be read: {problem.detail}")


class DamagedLog:
    """Judges the entries of one log, in their order. `batches`: those that count. `damages`: what is left out."""

    def __init__(self, shard: int, identity: str, entries: list[Entry]) -> None:
        self.batches: list[ReadBatch] = []
        self.damages: list[Damage] = []
        self._shard = shard
        self._identity = identity
        self._epoch = self._number = self._slack = 0  # slack: numbers that holes may have had
        self._is_over = False  # released, or of another cluster
        self._fragments: list[bytes] = []
        self._fragments_from = self._fragments_to = 0
        self._is_cut = False  # the beginning of the next commit may be in a hole
        if entries and not isinstance(entries[0].record, Claim) and entries[0].record is not None:
            before = entries[0].sequence - 1
            if before:
                what = "not there, and the log does not begin with a claim: it was purged, or its beginning is lost"
                entries = [Entry(1, before, 0, None, what), *entries]
        self._hidden = _hidden_claims(entries)
        for entry in entries:
            self._judge(entry)

    @property
    def last_hole(self) -> int:
        """Sequence of the newest message that is left out; 0: there is none."""
        return max([each.last for each in self.damages], default=0)

    def _leave_out(self, first: int, last: int, reason: str) -> None:
        self.damages.append(Damage(self._shard, reason, first, last))

    def _judge(self, entry: Entry) -> None:
        record = entry.record
        if record is None:
            self._pass_hole(entry)
        elif isinstance(record, Claim):
            self._claim(entry, record)
        elif self._is_next(record):
            if record.number > self._number + 1:
                self._cut()
            self._number, self._slack = record.number, 0
            if isinstance(record, Release):
                self._is_over = True
                self._fragments = []
            else:
                self._join(entry, record)

    def _pass_hole(self, hole: Entry) -> None:
        self._leave_out(hole.sequence, hole.last, hole.reason)
        claims = [each for each in self._hidden if hole.sequence <= each <= hole.last]
        if claims:
            self._cut()
            self._epoch, self._number, self._slack = claims[-1], 0, hole.last - claims[-1]
            self._is_over = False
        else:
            self._slack += hole.last - hole.sequence + 1

    def _claim(self, entry: Entry, claim: Claim) -> None:
        if self._slack:
            self._cut()
        self._fragments = []  # of a commit that its owner did not finish
        self._is_cut = False
        self._epoch, self._number, self._slack = entry.sequence, 0, 0
        self._is_over = claim.identity != self._identity
        if self._is_over:
            reason = f"a claim of the cluster {claim.identity}, not of {self._identity}; its commits do not count"
            self._leave_out(entry.sequence, entry.sequence, reason)

    def _is_next(self, record: Commit | Release) -> bool:
        is_next = self._number < record.number <= self._number + 1 + self._slack
        return bool(self._epoch) and record.epoch == self._epoch and is_next and not self._is_over

    def _cut(self) -> None:
        """Messages with numbers are in a hole: the commit before it has no end, and the next may have no beginning."""
        if self._fragments:
            self._leave_out(self._fragments_from, self._fragments_to, CUT)
        self._fragments = []
        self._is_cut = True

    def _join(self, entry: Entry, commit: Commit) -> None:
        if not self._fragments:
            self._fragments_from = entry.sequence
        self._fragments.append(commit.body)
        self._fragments_to = entry.sequence
        if not commit.is_last:
            return
        body, self._fragments = b"".join(self._fragments), []
        is_cut, self._is_cut = self._is_cut, False
        try:
            batches = read_batches(body)
            if len(batches) != len(commit.ages) or len(body) > MAX_BODY:
                raise Malformed("bad log record", f"{len(batches)} batches and {len(commit.ages)} ages")
        except Malformed as problem:
            reason = CUT if is_cut else f"cannot be read: {problem.detail}"
            self._leave_out(self._fragments_from, entry.sequence, reason)
            return
        for data, age in zip(batches, commit.ages, strict=True):
            made = entry.time - int(age * 1e9)
            self.batches.append(ReadBatch(data, self._fragments_from, entry.sequence, made))


def _hidden_claims(entries: Iterable[Entry]) -> list[int]:
    """Return the places of claims in holes: later messages name them as their epoch. Lowest first."""
    holes = [(each.sequence, each.last) for each in entries if each.record is None]
    named = {
        each.record.epoch: None
        for each in entries
        if isinstance(each.record, Commit | Release) and each.record.epoch < each.sequence
    }
    return sorted(epoch for epoch in named if any(first <= epoch <= last for first, last in holes))
