"""The rule that decides which messages of a log count.

*A commit counts only if its epoch is that of the newest claim before it, and its number is the next one.* All others
are void: of a broker that lost the shard and does not know it yet, or copies of a commit that was sent twice. Every
reader comes to the same result, because the order of the log is the same for all. The rule is needed besides the
expected sequence of appends: the server checks that before it proposes a message, not when it stores it (nats-server
#8469).
"""

from __future__ import annotations

from enum import Enum, auto

from dragoman.cluster.log_records import Claim, Commit, LogRecord, Release


class Verdict(Enum):
    """The meaning of a message at its place in the log."""

    CLAIM = auto()  # a new epoch begins
    COUNTS = auto()  # a commit or a fragment of one
    RELEASED = auto()  # the owner gave the shard up
    VOID = auto()


class EpochRule:
    """Judges the messages of a log in their order."""

    __slots__ = ("broker", "epoch", "incarnation", "is_released", "number", "voids")

    def __init__(self, epoch: int = 0, number: int = 0) -> None:
        """`epoch`, `number`: of the last message that counted, if the log is not read from its beginning."""
        self.epoch = epoch  # 0: nobody has claimed the shard yet
        self.number = number
        self.broker = ""  # the owner
        self.incarnation = ""
        self.is_released = False
        self.voids = 0

    def judge(self, sequence: int, record: LogRecord) -> Verdict:
        if isinstance(record, Claim):
            self.epoch = sequence
            self.number = 0
            self.broker = record.broker
            self.incarnation = record.incarnation
            self.is_released = False
            return Verdict.CLAIM
        is_next = record.epoch == self.epoch and record.number == self.number + 1
        if not is_next or self.is_released or not self.epoch:
            self.voids += 1
            return Verdict.VOID
        self.number = record.number
        if isinstance(record, Release):
            self.is_released = True
            return Verdict.RELEASED
        assert isinstance(record, Commit)
        return Verdict.COUNTS
