"""The log of a shard: claims, commits, unknown answers, fences, reading, releases and cleaning."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from case_tables import check_every_row
from dragoman.carriers.malformed import Malformed
from dragoman.cluster.epochs import EpochRule
from dragoman.cluster.jetstream import ApiError, Append, AppendOutcome
from dragoman.cluster.log import Expected, LogPhase, ShardEvents, ShardLog
from dragoman.cluster.log_reader import ReadBatch
from dragoman.cluster.log_records import Claim, Commit, LogRecord, Release, encode_batches, encode_record, read_record
from log_model import SECOND, ModelLog, ModelLogIO

EXPECTED = Expected("id", 3)


def claim_of(broker: str, nonce: int = 0) -> Claim:
    return Claim(1, broker, f"{broker}1", b"%b %d" % (broker.encode(), nonce), "1.0", "id")


class Broker(ShardEvents):
    """A broker with a shard's log. What happens is in `news`, without the times."""

    def __init__(self, log: ModelLog, name: str = "a", max_message: int = 1 << 20) -> None:
        self.name = name
        self.news: list[tuple[object, ...]] = []
        self.batches: list[bytes] = []
        self.read_batches: list[ReadBatch] = []
        self.nonces = 0
        self.io = ModelLogIO(log, max_message)
        self.log = ShardLog(self.io, self, self._claim, EXPECTED)

    def _claim(self) -> Claim:
        self.nonces += 1
        return claim_of(self.name, self.nonces)

    def claimed(self, epoch: int, now: float) -> None:
        self.news.append(("claimed", epoch))

    def read(self, batches: list[ReadBatch], now: float) -> None:
        self.read_batches += batches
        self.batches += [each.data for each in batches]

    def read_again(self, now: float) -> None:
        self.news.append(("read again",))
        self.batches = []

    def owned(self, time: int, now: float) -> None:
        self.news.append(("owned", time))

    def saved(self, ticket: int, first: int, last: int, now: float) -> None:
        self.news.append(("saved", ticket, first, last))

    def released(self, now: float) -> None:
        self.news.append(("released",))

    def lost(self, reason: str, now: float) -> None:
        self.news.append(("lost", reason))

    def alarm(self, reason: str, now: float) -> None:
        self.news.append(("alarm", reason))

    def take(self) -> list[tuple[object, ...]]:
        news, self.news = self.news, []
        return news

    def own(self) -> Broker:
        """Claim the shard; nothing goes wrong."""
        self.log.claim(0.0)
        assert self.log.phase is LogPhase.OWNED
        self.take()
        return self


def records(log: ModelLog) -> list[LogRecord]:
    return [read_record(payload) for payload, _ in log.messages.values()]


# ---------------------------------------------------------------- the epoch rule


def test_a_commit_counts_only_in_the_newest_epoch_and_with_the_next_number() -> None:
    rule = EpochRule()

    def judge(sequence: int, record: LogRecord) -> str:
        return rule.judge(sequence, record).name

    def commit(epoch: int, number: int) -> Commit:
        return Commit(epoch, number, [], True, b"")

    assert judge(1, commit(0, 1)) == "VOID"  # nobody has claimed it
    assert judge(2, claim_of("a")) == "CLAIM"
    assert [judge(3, commit(2, 1)), judge(4, commit(2, 2))] == ["COUNTS", "COUNTS"]
    assert [judge(5, commit(2, 2)), judge(6, commit(2, 4)), judge(7, commit(1, 3))] == ["VOID"] * 3
    assert judge(8, commit(2, 3)) == "COUNTS"
    assert judge(9, claim_of("b")) == "CLAIM"
    assert (rule.epoch, rule.number, rule.broker, rule.incarnation) == (9, 0, "b", "b1")
    assert [judge(10, commit(2, 4)), judge(11, Release(2, 4))] == ["VOID"] * 2
    assert [judge(12, commit(9, 1)), judge(13, Release(9, 2))] == ["COUNTS", "RELEASED"]
    assert rule.is_released
    assert [judge(14, commit(9, 3)), judge(15, Release(9, 3))] == ["VOID"] * 2
    assert judge(16, claim_of("a")) == "CLAIM"
    assert not rule.is_released
    assert rule.voids == 8


def test_records_are_read_as_they_are_written_and_others_are_malformed() -> None:
    for record in (claim_of("a"), Commit(1, 2, [0.5], True, b"x"), Release(3, 4)):
        assert read_record(bytearray(encode_record(record))) == record
    wrong = [b"", b"\x00", b"{}", encode_record(claim_of("a"))[:-1], b"\x95\xa1X", b"\x91" * 5000]
    wrong.append(encode_record(Commit(1, 1, [float("inf")], True, b"")))
    wrong.append(encode_record(Commit(1, 1, [-1.0], True, b"")))
    wrong.append(encode_record(Claim(2, "a", "i", b"n", "r", "id")))

    def check(data: bytes) -> None:
        with pytest.raises(Malformed):
            read_record(data)

    check_every_row(check, [(each,) for each in wrong])


# ---------------------------------------------------------------- claim and commit


def test_a_new_log_is_claimed_and_owned() -> None:
    log = ModelLog()
    log.time = 5.0
    broker = Broker(log)
    broker.log.claim(0.0)
    assert broker.take() == [("claimed", 1), ("owned", 5 * SECOND)]
    assert (broker.log.phase, broker.log.epoch) == (LogPhase.OWNED, 1)
    assert records(log) == [claim_of("a", 1)]


def test_batches_that_wait_share_a_commit() -> None:
    log = ModelLog()
    broker = Broker(log).own()
    broker.io.is_held = True
    for ticket in range(1, 5):
        broker.log.add(ticket, b"batch %d" % ticket, float(ticket))
    assert broker.take() == []
    assert broker.io.waiting[0][0] == "append"
    assert len(broker.io.waiting) == 1  # one append is in flight
    broker.io.deliver(10.0)
    assert broker.take() == [("saved", 1, 2, 2)]
    broker.io.deliver(11.0)
    assert broker.take() == [("saved", 2, 3, 3), ("saved", 3, 3, 3), ("saved", 4, 3, 3)]
    assert records(log)[1:] == [
        Commit(1, 1, [0.0], True, encode_batches([b"batch 1"])),
        Commit(1, 2, [8.0, 7.0, 6.0], True, encode_batches([b"batch 2", b"batch 3", b"batch 4"])),
    ]
    assert broker.log.writer is not None
    assert broker.log.writer.is_idle


def test_a_commit_has_limits() -> None:
    log = ModelLog()
    broker = Broker(log).own()
    broker.io.is_held = True
    for ticket in range(1, 1203):
        broker.log.add(ticket, b"x", 0.0)
    for ticket in range(1203, 1206):
        broker.log.add(ticket, bytes(300_000), 0.0)
    broker.io.is_held = False
    broker.io.deliver(0.0)
    assert [len(each.ages) for each in records(log)[1:]] == [1, 500, 500, 202, 1, 1]  # type: ignore[union-attr]
    assert [ticket for _, ticket, _, _ in broker.take()] == list(range(1, 1206))


def test_a_batch_over_the_limit_of_a_message_is_cut_and_counts_with_its_last_fragment() -> None:
    log = ModelLog()
    broker = Broker(log, max_message=1000).own()
    large = bytes(range(256)) * 20
    broker.log.add(1, large, 0.0)
    broker.log.add(2, b"small", 0.0)
    assert broker.take() == [("saved", 1, 2, 7), ("saved", 2, 8, 8)]
    assert all(len(payload) <= 1000 for payload, _ in log.messages.values())
    other = Broker(log, "b").own()
    assert other.batches == [large, b"small"]
    assert [(each.first, each.last) for each in other.read_batches] == [(2, 7), (8, 8)]


def test_a_batch_of_which_the_end_is_missing_is_nothing() -> None:
    log = ModelLog()
    broker = Broker(log, max_message=1000).own()
    broker.log.add(1, b"whole", 0.0)
    broker.io.is_held = True
    broker.log.add(2, bytes(5000), 0.0)
    broker.io.deliver(0.0)
    broker.io.deliver(0.0)
    other = Broker(log, "b").own()
    assert other.batches == [b"whole"]
    other.log.add(1, b"next", 0.0)
    assert Broker(log, "c").own().batches == [b"whole", b"next"]


# ---------------------------------------------------------------- unknown answers


def test_log_resolves_unknown_append() -> None:
    """Stored or not, the same append is sent again, and the batch is saved once."""

    def check(is_stored: bool, tries: int) -> None:
        log = ModelLog()
        broker = Broker(log).own()
        broker.io.is_held = True
        broker.log.add(1, b"batch", 0.0)
        now = 0.0
        for _ in range(tries):
            if is_stored:
                broker.io.deliver(now, answered=False)
                is_stored = False
            else:
                lost = broker.io.waiting.popleft()
                assert lost[0] == "append"
                broker.log.writer._answered(broker.log.writer._tries, Append(AppendOutcome.UNKNOWN), now)  # type: ignore[union-attr]
            assert broker.take() == []
            due = broker.log.tick(now)
            assert now < due <= now + 1.0
            now = due
            broker.log.tick(now)
        while broker.io.waiting:
            broker.io.deliver(now)
        assert broker.take() == [("saved", 1, 2, 2)]
        assert [type(each).__name__ for each in records(log)] == ["Claim", "Commit"]

    check_every_row(check, [(is_stored, tries) for is_stored in (False, True) for tries in (1, 2, 5)])


def test_appends_wait_while_nobody_listens_and_while_the_log_is_full() -> None:
    log = ModelLog()
    broker = Broker(log).own()
    log.full = True
    broker.log.add(1, b"batch", 0.0)
    writer = broker.log.writer
    assert writer is not None
    assert (writer.problem, writer.waiting_since) == ("maximum bytes exceeded", 0.0)
    now = 0.0
    pauses = []
    for _ in range(8):
        due = broker.log.tick(now)
        pauses.append(due - now)
        now = due
        broker.log.tick(now)
    assert pauses == sorted(pauses)
    assert pauses[-1] == 1.0
    log.full = False
    broker.log.tick(broker.log.tick(now))
    assert (broker.take(), writer.problem) == ([("saved", 1, 2, 2)], "")


def test_a_leader_that_is_behind_is_waited_for_and_never_believed() -> None:
    """Its answers are those of a log that ends earlier: it does not know yet that it is no leader any more."""
    log = ModelLog()
    broker = Broker(log).own()
    broker.log.add(1, b"one", 0.0)
    stale = ModelLog()
    stale.append(encode_record(claim_of("a", 1)), 0)
    broker.io.log = stale
    broker.take()
    broker.log.add(2, b"two", 0.0)
    assert broker.take() == []
    assert broker.log.writer is not None
    assert "as if it ended with 1; 2 was stored" in broker.log.writer.problem
    broker.io.log = log
    broker.log.tick(broker.log.tick(0.0))
    assert broker.take() == [("saved", 2, 3, 3)]


def test_an_answer_to_an_earlier_try_is_ignored() -> None:
    log = ModelLog()
    broker = Broker(log).own()
    broker.io.is_held = True
    broker.log.add(1, b"batch", 0.0)
    late = broker.io.waiting.popleft()[1]
    assert broker.log.writer is not None
    broker.log.writer._answered(broker.log.writer._tries, Append(AppendOutcome.UNKNOWN), 0.0)
    broker.log.tick(broker.log.tick(0.0))
    late(1.0, True)  # stored now; the answer belongs to a request that has ended
    assert broker.take() == []
    while broker.io.waiting:
        broker.io.deliver(1.0)
    assert broker.take() == [("saved", 1, 2, 2)]
    assert log.last == 2


# ---------------------------------------------------------------- fences


def test_a_broker_that_lost_the_shard_saves_nothing_more() -> None:
    log = ModelLog()
    a = Broker(log).own()
    a.log.add(1, b"of a", 0.0)
    a.take()
    b = Broker(log, "b").own()
    assert b.batches == [b"of a"]
    a.log.add(2, b"late", 0.0)
    a.log.add(3, b"later", 0.0)
    assert a.take() == [("lost", "b has claimed the shard")]
    assert (a.log.phase, a.log.epoch) == (LogPhase.IDLE, 0)
    b.log.add(1, b"of b", 0.0)
    assert b.take() == [("saved", 1, 4, 4)]
    assert Broker(log, "c").own().batches == [b"of a", b"of b"]


def test_a_commit_that_was_stored_before_the_claim_is_saved_although_its_answer_was_lost() -> None:
    log = ModelLog()
    a = Broker(log).own()
    a.io.is_held = True
    a.log.add(1, b"in time", 0.0)
    a.log.add(2, b"late", 0.0)
    a.io.deliver(0.0, answered=False)
    b = Broker(log, "b").own()
    assert b.batches == [b"in time"]
    a.io.is_held = False
    a.log.tick(a.log.tick(0.0))
    assert a.take() == [("saved", 1, 2, 2), ("lost", "b has claimed the shard")]


def test_log_void_commit_of_an_older_epoch() -> None:
    """It slipped through the check of the sequence: readers ignore it, and the owner goes on behind it."""
    log = ModelLog()
    a = Broker(log).own()
    b = Broker(log, "b").own()
    b.log.add(1, b"one", 0.0)
    log.append(encode_record(Commit(1, 1, [0.0], True, encode_batches([b"of a"]))), 0, forced=True)
    b.log.add(2, b"two", 0.0)
    log.append(encode_record(Commit(1, 2, [0.0], True, encode_batches([b"of a"]))), 0, forced=True)
    log.append(encode_record(Release(1, 3)), 0, forced=True)
    b.log.add(3, b"three", 0.0)
    assert b.take() == [("saved", 1, 3, 3), ("saved", 2, 5, 5), ("saved", 3, 8, 8)]
    assert b.log.writer is not None
    assert b.log.writer.voids == 3
    assert Broker(log, "c").own().batches == [b"one", b"two", b"three"]
    assert a.log.phase is LogPhase.OWNED  # it has not written since, and does not know


def test_log_pipelined_writer_is_fenced() -> None:
    """A writer with several appends in flight, each behind the other: one of them fits behind the rival's claim."""
    log = ModelLog()
    Broker(log).own()
    log.append(encode_record(claim_of("b", 1)), 1)  # takes the place of a's first commit
    first = log.append(encode_record(Commit(1, 1, [0.0], True, encode_batches([b"first"]))), 1)
    second = log.append(encode_record(Commit(1, 2, [0.0], True, encode_batches([b"second"]))), 2)
    assert (first.outcome, second.outcome) == (AppendOutcome.WRONG_SEQUENCE, AppendOutcome.STORED)
    assert Broker(log, "c").own().batches == []


def test_a_copy_of_a_commit_counts_once() -> None:
    log = ModelLog()
    a = Broker(log).own()
    a.log.add(1, b"one", 0.0)
    log.append(log.messages[2][0], 0, forced=True)
    a.log.add(2, b"two", 0.0)
    assert a.take() == [("saved", 1, 2, 2), ("saved", 2, 4, 4)]
    assert Broker(log, "b").own().batches == [b"one", b"two"]


def test_an_owner_that_writes_nothing_finds_out_that_it_lost_the_shard() -> None:
    log = ModelLog()
    a = Broker(log).own()
    assert a.log.tick(0.0) == 10.0
    a.log.tick(10.0)
    assert a.log.tick(10.0) == 20.0
    Broker(log, "b").own()
    a.log.tick(20.0)
    assert a.take() == [("lost", "b has claimed the shard")]


def test_an_owner_that_looks_passes_over_void_messages() -> None:
    log = ModelLog()
    a = Broker(log).own()
    for number in (1, 2, 3):
        log.append(encode_record(Commit(77, number, [], True, b"")), 0, forced=True)
    a.log.verify(0.0)
    assert a.take() == []
    a.log.add(1, b"x", 0.0)
    assert a.take() == [("saved", 1, 5, 5)]


def test_a_broker_whose_place_in_the_log_was_purged_has_lost_the_shard() -> None:
    """Found by the simulation: it looked for the message at its place for ever, which the next owner had purged."""

    def check(is_writing: bool) -> None:
        log = ModelLog()
        a = Broker(log).own()
        a.log.add(1, b"one", 0.0)
        b = Broker(log, "b").own()
        b.log.add(1, b"one again", 0.0)
        b.log.renew(0.0)
        b.log.purge(lambda found, now: None, 0.0)
        a.take()
        if is_writing:
            a.log.add(2, b"late", 0.0)
        else:
            a.log.verify(0.0)
        assert a.take() == [("lost", "another broker has cleaned the log")]
        b.log.add(2, b"two", 0.0)
        assert b.take()[-1] == ("saved", 2, 6, 6)

    check_every_row(check, [(True,), (False,)])


def test_an_owner_whose_log_is_gone_or_ends_too_early_says_so_and_keeps_its_jobs() -> None:
    """After a power cut of servers that do not sync, owners waited for ever, and gave no reason."""

    def check(attack: Callable[[ModelLog], None], reason: str, *, is_writing: bool) -> None:
        log = ModelLog()
        a = Broker(log).own()
        a.log.add(1, b"one", 0.0)
        attack(log)
        if is_writing:
            a.log.add(2, b"two", 0.0)
        a.take()
        for now in range(10, 50, 10):
            assert a.log.loss == "", "a stale leader may say the same"
            a.log.verify(float(now))
        assert a.log.loss == reason
        assert a.take() == []
        assert a.log.phase is LogPhase.OWNED

    def is_gone(log: ModelLog) -> None:
        log.is_gone = True

    def ends_early(log: ModelLog) -> None:
        log.messages.pop(log.last)
        log.last -= 1

    def is_purged(log: ModelLog) -> None:
        log.purge(log.last + 1)

    gone = "the log cannot be used: stream not found"
    early = "stream LOG ends with 1, and has had 2: it has lost messages"
    purged = "stream LOG begins with 3, after our claim 1: it was purged"
    check_every_row(
        lambda attack, reason, writing: check(attack, reason, is_writing=writing),
        [
            (is_gone, gone, False),
            (is_gone, gone, True),
            (ends_early, early, False),
            (ends_early, early, True),
            (is_purged, purged, False),
        ],
    )


def test_a_log_that_is_whole_again_is_not_lost() -> None:
    log = ModelLog()
    a = Broker(log).own()
    log.is_gone = True
    for now in (10.0, 50.0):
        a.log.verify(now)
    assert a.log.loss
    log.is_gone = False
    a.log.verify(60.0)
    assert a.log.loss == ""


def test_a_message_that_cannot_be_read_ends_writing() -> None:
    log = ModelLog()
    a = Broker(log).own()
    log.append(b"garbage", 1)
    a.log.add(1, b"x", 0.0)
    (news,) = a.take()
    assert news[0] == "lost"
    assert "message 2 of the log cannot be read" in str(news[1])


# ---------------------------------------------------------------- claims


def test_claim_race_has_one_winner() -> None:
    """Two brokers claim at once, and each answer may be lost: one owns the shard, and the other knows that."""

    def check(first_lost: bool, second_lost: bool, order: tuple[int, ...]) -> None:
        log = ModelLog()
        brokers = [Broker(log, "a"), Broker(log, "b")]
        for each in brokers:
            each.io.is_held = True
            each.log.claim(0.0)
            each.io.deliver(0.0)  # inspected: both know the same last sequence
        for index in order:
            brokers[index].io.deliver(0.0, answered=not (first_lost, second_lost)[index])
        for each in brokers:
            each.io.is_held = False
            now = 0.0
            while each.io.waiting:
                each.io.deliver(now)
            for _ in range(5):
                now = min(each.log.tick(now), now + 1.0)
        phases = [each.log.phase for each in brokers]
        assert sorted(each.name for each in phases) == ["IDLE", "OWNED"]
        winner, loser = (brokers[index] for index in order)
        assert winner.log.phase is LogPhase.OWNED
        assert loser.take()[-1] == ("lost", f"{winner.name} has claimed the shard")
        assert len(records(log)) == 1

    flags = (False, True)
    check_every_row(check, [(a, b, order) for a in flags for b in flags for order in ((0, 1), (1, 0))])


def test_a_claim_is_lost_to_an_owner_that_still_writes() -> None:
    log = ModelLog()
    a = Broker(log).own()
    b = Broker(log, "b")
    b.io.is_held = True
    b.log.claim(0.0)
    b.io.deliver(0.0)
    a.log.add(1, b"alive", 0.0)
    b.io.is_held = False
    b.io.deliver(0.0)
    assert b.take() == [("lost", "its owner still writes")]
    a.log.add(2, b"still", 0.0)
    assert a.take() == [("saved", 1, 2, 2), ("saved", 2, 3, 3)]


def test_a_claim_is_never_given_up_while_its_fate_is_unknown() -> None:
    log = ModelLog()
    a = Broker(log)
    a.io.is_held = True
    a.log.claim(0.0)
    a.io.deliver(0.0)
    a.io.deliver(0.0, answered=False)  # it is in the log
    now = 0.0
    for _ in range(20):
        now = a.log.tick(now)
        a.log.tick(now)
        if a.io.waiting:
            assert a.log.phase is LogPhase.CLAIMING
            a.io.drop()
            assert a.log.writer is not None
            a.log.writer._answered(a.log.writer._tries, Append(AppendOutcome.UNKNOWN), now)
    a.io.is_held = False
    now = a.log.tick(now)
    a.log.tick(now)
    assert a.log.phase is LogPhase.OWNED
    assert len(records(log)) == 1


def test_log_lower_last_sequence_stops_the_claim() -> None:
    log = ModelLog()
    a = Broker(log).own()
    for ticket in range(1, 6):
        a.log.add(ticket, b"x", 0.0)
    b = Broker(log, "b")
    b.log.heard(a.log.epoch + 5)
    log.last = 3
    for sequence in (4, 5, 6):
        del log.messages[sequence]
    b.log.claim(0.0)
    now = 0.0
    while b.log.phase is LogPhase.INSPECTING and now < 100.0:
        assert b.take() == []
        now = b.log.tick(now)
        b.log.tick(now)
    assert 30.0 <= now <= 33.0  # a leader that does not know that it is none would answer so for a while
    assert b.take() == [("alarm", "stream LOG ends with 3, and has had 6: it has lost messages")]
    assert (b.log.phase, log.last) == (LogPhase.IDLE, 3)


def test_a_leader_that_was_behind_only_delays_the_claim() -> None:
    log = filled(5)
    b = Broker(log, "b")
    b.log.heard(6)
    b.io.log = ModelLog()
    b.log.claim(0.0)
    b.io.log = log
    b.log.tick(b.log.tick(0.0))
    assert b.take()[0] == ("claimed", 7)


def test_a_stream_that_cannot_be_trusted_is_not_claimed() -> None:
    def check(log: ModelLog, problem: str) -> None:
        broker = Broker(log)
        broker.log.claim(0.0)
        ((kind, reason),) = broker.take()
        assert kind == "alarm"
        assert problem in str(reason)
        assert log.last == 0

    check_every_row(
        check,
        [
            (ModelLog(identity="other"), "belongs to other, and not to id"),
            (ModelLog(identity=""), "belongs to no cluster"),
            (ModelLog(replicas=1), "has 1 replicas; 3 are configured"),
        ],
    )


def test_a_stream_that_is_missing_is_never_created_and_one_that_does_not_answer_is_asked_again() -> None:
    broker = Broker(ModelLog())
    broker.io.is_held = True
    broker.log.claim(0.0)
    broker.io.waiting.clear()
    broker.log._inspected(ApiError(0, 0, "no responders"), 0.0)
    assert broker.take() == []
    due = broker.log.tick(0.0)
    assert 0.0 < due < 1.0
    broker.log.tick(due)
    assert broker.io.asked == ["inspect", "inspect"]
    broker.log._inspected(ApiError(404, 10059, "stream not found"), 0.0)
    assert broker.take() == [("alarm", "the log cannot be used: stream not found")]


# ---------------------------------------------------------------- reading


def filled(count: int) -> ModelLog:
    log = ModelLog()
    a = Broker(log).own()
    for ticket in range(1, count + 1):
        log.time = float(ticket)
        a.log.add(ticket, b"%d" % ticket, 0.0)
    return log


def test_everything_is_read_in_order_and_with_its_time() -> None:
    log = filled(3000)
    log.time = 5000.0
    b = Broker(log, "b")
    b.log.claim(0.0)
    assert b.take() == [("claimed", 3002), ("owned", 5000 * SECOND)]
    assert b.batches == [b"%d" % number for number in range(1, 3001)]
    assert [each.made for each in b.read_batches] == [number * SECOND for number in range(1, 3001)]
    assert b.io.asked.count("batch") == 4


def test_the_time_of_a_batch_is_that_at_which_it_was_made() -> None:
    log = ModelLog()
    a = Broker(log).own()
    a.io.is_held = True
    a.log.add(1, b"one", 0.0)
    a.log.add(2, b"two", 3.0)
    log.time = 10.0
    a.io.deliver(10.0)  # the second commit is sent at 10 s
    log.time = 10.5
    a.io.deliver(10.5)
    b = Broker(log, "b").own()
    assert [each.made / SECOND for each in b.read_batches] == [10.0, 3.5]


def test_a_replica_that_lags_behind_is_asked_again() -> None:
    log = filled(50)
    b = Broker(log, "b")
    lag = iter([10, 10, 25, 25, 52, 52, 52])
    whole = log.batch
    log.batch = lambda first, count, size, up_to: whole(first, count, size, next(lag))  # type: ignore[method-assign]
    b.log.claim(0.0)
    now = 0.0
    while b.log.phase is LogPhase.READING:
        now = b.log.tick(now)
        b.log.tick(now)
    assert b.batches == [b"%d" % number for number in range(1, 51)]


def test_a_batch_that_was_not_complete_is_asked_for_again() -> None:
    log = filled(5)
    b = Broker(log, "b")
    b.io.is_held = True
    b.log.claim(0.0)
    while b.io.waiting[0][0] != "batch":
        b.io.deliver(0.0)
    b.io.deliver(0.0, answered=False)
    assert b.log.phase is LogPhase.READING
    b.io.is_held = False
    b.log.tick(b.log.tick(0.0))
    assert b.batches == [b"1", b"2", b"3", b"4", b"5"]


def test_log_gap_stops_the_claim() -> None:
    log = filled(5)
    del log.messages[4]
    b = Broker(log, "b")
    b.log.claim(0.0)
    assert b.take() == [("claimed", 7), ("alarm", "message 4 of the log is missing")]
    assert b.log.phase is LogPhase.IDLE


def test_a_log_that_was_purged_while_it_was_read_is_read_again() -> None:
    """The earlier owner cleans the log and does not know yet that it has lost it."""
    log = filled(10)
    whole = log.batch
    log.batch = lambda first, count, size, up_to: whole(first, min(count, 4), size, up_to)  # type: ignore[method-assign]
    a_claim = log.append(encode_record(claim_of("a", 9)), 11).sequence  # renewed
    log.append(encode_record(Commit(a_claim, 1, [0.0] * 2, True, encode_batches([b"8 again", b"9 again"]))), a_claim)
    b = Broker(log, "b")
    b.io.is_held = True
    b.log.claim(0.0)
    while b.batches == []:
        b.io.deliver(0.0)
    log.purge(a_claim)
    b.io.is_held = False
    while b.io.waiting:
        b.io.deliver(0.0)
    assert b.take() == [("claimed", 14), ("read again",), ("owned", 10 * SECOND)]
    assert b.batches == [b"8 again", b"9 again"]


def test_logs_that_cannot_be_used() -> None:
    def check(first: LogRecord | bytes, problem: str) -> None:
        log = ModelLog()
        log.append(first if isinstance(first, bytes) else encode_record(first), 0)
        log.append(encode_record(claim_of("z")), 1)
        broker = Broker(log)
        broker.log.claim(0.0)
        ((_, epoch), (kind, reason)) = broker.take()
        assert (epoch, kind) == (3, "alarm")
        assert problem in str(reason)

    other = Claim(1, "x", "x1", b"n", "1.0", "another cluster")
    check_every_row(
        check,
        [
            (b"garbage", "message 1 of the log"),
            (Commit(1, 1, [], True, encode_batches([])), "does not begin with a claim"),
            (other, "it is of the cluster another cluster, not of id"),
            (Claim(9, "x", "x1", b"n", "9.0", "id"), "this release reads 1; update it"),
        ],
    )
    log = ModelLog()
    log.append(encode_record(claim_of("z")), 0)
    log.append(encode_record(Commit(1, 1, [0.0, 0.0], True, encode_batches([b"one"]))), 1)
    broker = Broker(log)
    broker.log.claim(0.0)
    assert "1 batches and 2 ages" in str(broker.take()[-1])


# ---------------------------------------------------------------- confirmations


def test_an_append_that_is_sent_after_the_question_confirms_it() -> None:
    """R241: a commit that is made anyway, or else an empty one."""
    log = ModelLog()
    a = Broker(log).own()
    confirmed: list[float] = []
    assert a.log.confirm(confirmed.append, 1.0) == ""
    assert confirmed == [1.0]
    a.io.is_held = True
    a.log.add(1, b"one", 2.0)
    a.log.confirm(confirmed.append, 2.0)
    a.io.deliver(2.1)
    assert confirmed == [1.0], "the append was on its way before the question came"
    a.log.add(2, b"two", 2.1)
    a.io.deliver(2.2)
    assert (confirmed, a.log.empty, a.take()) == ([1.0, 2.2], 2, [("saved", 1, 3, 3)])
    a.io.deliver(2.3)
    assert a.take() == [("saved", 2, 5, 5)]
    assert Broker(log, "b").own().batches == [b"one", b"two"]


def test_a_commit_confirms_without_an_empty_one() -> None:
    log = ModelLog()
    a = Broker(log).own()
    confirmed: list[float] = []
    a.io.is_held = True
    a.log.add(1, b"one", 0.0)
    a.log.add(2, b"two", 0.0)
    a.log.confirm(confirmed.append, 0.0)
    a.io.deliver(0.1)
    assert confirmed == []
    a.io.deliver(0.2)
    assert (confirmed, a.log.empty, log.last) == ([0.2], 0, 3)


def test_one_empty_commit_confirms_all_questions_before_it_and_there_are_twenty_a_second() -> None:
    log = ModelLog()
    a = Broker(log).own()
    asked, confirmed = 0, []
    now, before = 5.0, log.last
    for number in range(1000):
        now = 5.0 + 0.001 * number
        asked += 1
        a.log.confirm(confirmed.append, now)
        a.log.tick(now)
    assert log.last - before == a.log.empty == 20
    due = a.log.tick(now)
    assert now < due <= now + 0.05
    a.log.tick(due)
    assert len(confirmed) == asked


def test_an_append_that_is_sent_again_confirms_no_question_that_came_after_its_first_try() -> None:
    """The first try may be the one that is in the log, from a time before another broker claimed the shard."""
    log = ModelLog()
    a = Broker(log).own()
    a.io.is_held = True
    confirmed: list[float] = []
    a.log.add(1, b"one", 0.0)
    a.io.deliver(0.5, answered=False)  # it is stored
    b = Broker(log, "b").own()
    a.log.confirm(confirmed.append, 2.0)
    a.log.tick(2.0)
    while a.io.waiting:
        a.io.deliver(2.1)
    assert confirmed == []
    assert a.take() == [("saved", 1, 2, 2), ("lost", "b has claimed the shard")]
    assert b.batches == [b"one"]


def test_a_broker_that_lost_the_shard_confirms_nothing() -> None:
    log = ModelLog()
    a = Broker(log).own()
    Broker(log, "b").own()
    confirmed: list[float] = []
    assert a.log.confirm(confirmed.append, 0.0) == ""
    assert (confirmed, a.take()) == ([], [("lost", "b has claimed the shard")])
    assert a.log.confirm(confirmed.append, 0.0) == "it is not at this broker"


def test_a_log_that_cannot_be_written_confirms_nothing_and_says_why() -> None:
    log = ModelLog()
    a = Broker(log).own()
    log.full = True
    confirmed: list[float] = []
    a.log.add(1, b"one", 0.0)
    assert "maximum bytes exceeded" in a.log.confirm(confirmed.append, 0.0)
    log.full = False
    a.log.tick(1.0)
    assert a.log.confirm(confirmed.append, 1.0) == ""
    assert confirmed == [1.0]


# ---------------------------------------------------------------- release and cleaning


def test_a_release_follows_everything_that_was_added() -> None:
    log = ModelLog()
    a = Broker(log).own()
    a.io.is_held = True
    a.log.add(1, b"one", 0.0)
    a.log.add(2, b"two", 0.0)
    a.log.release(0.0)
    for _ in range(3):
        a.io.deliver(0.0)
    assert a.take() == [("saved", 1, 2, 2), ("saved", 2, 3, 3), ("released",)]
    assert records(log)[-1] == Release(1, 3)
    assert a.log.phase is LogPhase.IDLE
    b = Broker(log, "b").own()
    assert b.batches == [b"one", b"two"]
    a.io.is_held = False
    a.log.claim(0.0)
    assert a.take()[0] == ("claimed", 6)


def test_a_release_whose_answer_was_lost_is_found() -> None:
    log = ModelLog()
    a = Broker(log).own()
    a.io.is_held = True
    a.log.release(0.0)
    a.io.deliver(0.0, answered=False)
    a.io.is_held = False
    a.log.tick(a.log.tick(0.0))
    assert a.take() == [("released",)]
    assert len(records(log)) == 2


class Table:
    """Rows of an owner: the newest value of each key. A batch is a JSON object; None deletes."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.places: dict[str, int] = {}  # sequence at which each row was written last

    def take(self, batches: list[bytes]) -> Table:
        for batch in batches:
            for key, value in json.loads(batch).items():
                if value is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = value
        return self


def test_log_cleaning_keeps_every_live_row() -> None:
    """Also with writes while it is cleaned, and if the owner dies at any point of it."""

    def check(dies_at: int) -> None:
        log = ModelLog()
        a = Broker(log).own()
        table = Table()
        ticket = 0

        def write(rows: dict[str, str | None]) -> None:
            nonlocal ticket
            ticket += 1
            batch = json.dumps(rows).encode()
            table.take([batch])
            a.log.add(ticket, batch, 0.0)

        for number in range(40):
            write({f"k{number % 7}": f"v{number}", f"gone{number}": "x"})
            write({f"gone{number}": None})
        steps = 0

        def alive() -> bool:
            nonlocal steps
            steps += 1
            return steps <= dies_at

        if alive():
            a.log.renew(0.0)
        for key in sorted(table.rows) if a.log.epoch > 1 else ():
            if not alive():
                break
            write({key: table.rows[key]})
            write({"k3": f"while cleaning {key}"})
        else:
            if a.log.epoch > 1:
                a.log.purge(lambda found, now: None, 0.0)
                assert log.first == a.log.epoch
                assert len(log.messages) < 30
        assert Table().take(Broker(log, "b").own().batches).rows == table.rows

    check_every_row(check, [(dies_at,) for dies_at in range(12)])


def test_a_renewed_claim_goes_before_batches_that_wait() -> None:
    log = ModelLog()
    a = Broker(log).own()
    a.io.is_held = True
    a.log.add(1, b"one", 0.0)
    a.log.add(2, b"two", 0.0)
    a.log.renew(0.0)
    a.io.is_held = False
    a.io.deliver(0.0)
    assert a.take() == [("saved", 1, 2, 2), ("claimed", 3), ("saved", 2, 4, 4)]
    assert Broker(log, "b").own().batches == [b"one", b"two"]


def test_an_abandoned_log_is_silent() -> None:
    log = filled(3)
    b = Broker(log, "b")
    b.io.is_held = True
    b.log.claim(0.0)
    b.log.abandon()
    while b.io.waiting:
        b.io.deliver(0.0)
    assert (b.take(), log.last, b.log.phase) == ([], 4, LogPhase.IDLE)
    b.io.is_held = False
    b.log.claim(0.0)
    assert b.log.phase is LogPhase.OWNED
    b.log.abandon()
    b.log.add(1, b"x", 0.0)
    assert b.log.tick(100.0) == float("inf")
