"""The readable part of a damaged log: messages in holes, claims in holes, commits in fragments, jobs and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from case_tables import check_every_row
from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.log_records import Claim, Commit, LogRecord, Release, encode_batches, encode_record
from dragoman.cluster.shard_rows import Batch
from dragoman.transfer.damage import Damage
from dragoman.transfer.damaged_log import CUT, MISSING, TRIES, DamagedLog, read_entries
from dragoman.transfer.errors import TransferError
from dragoman.transfer.salvage import (
    KEYS,
    NO_FIRST_ROW,
    NO_GROUP,
    NO_MEMBERS,
    NO_PAYLOAD,
    NO_ROWS,
    OLDER,
    VALUES,
    SalvagedShard,
)
from log_model import ModelLog

SHARD = 3


class Writer:
    """Writes a log as brokers do: the messages are in `log`, and its newest epoch and number here."""

    def __init__(self) -> None:
        self.log = ModelLog()
        self.log.time = 1000.0
        self.epoch = 0
        self.number = 0

    def put(self, record: LogRecord) -> int:
        self.log.append(encode_record(record), self.log.last)
        return self.log.last

    def claim(self, identity: str = "id") -> int:
        self.epoch = self.put(Claim(1, "a", "a1", b"n%d" % self.log.last, "1.0", identity))
        self.number = 0
        return self.epoch

    def commit(self, *batches: bytes, parts: int = 1) -> int:
        """Write a commit, in several messages if asked for. Returns the sequence of the last one."""
        body = encode_batches(list(batches))
        size = -(-len(body) // parts)
        for part in range(parts):
            self.number += 1
            is_last = part == parts - 1
            ages = [0.0] * len(batches) if is_last else []
            self.put(Commit(self.epoch, self.number, ages, is_last, body[part * size : (part + 1) * size]))
        return self.log.last

    def release(self) -> int:
        self.number += 1
        return self.put(Release(self.epoch, self.number))

    def entries(self, up_to: int = 0) -> list[Any]:
        async def ask(first: int, count: int) -> DirectBatch:
            return self.log.batch(first, count, 1 << 20, self.log.last)

        return asyncio.run(read_entries(ask, self.log.first, up_to or self.log.last))

    def read(self) -> DamagedLog:
        return DamagedLog(SHARD, "id", self.entries())

    def lose(self, *sequences: int) -> None:
        for each in sequences:
            del self.log.messages[each]


def texts(log: DamagedLog) -> list[bytes]:
    return [each.data for each in log.batches]


def places(log: DamagedLog) -> list[tuple[int, int]]:
    return [(each.first, each.last) for each in log.damages]


# ---------------------------------------------------------------- messages


def test_a_whole_log_is_read_as_a_broker_reads_it() -> None:
    writer = Writer()
    first = writer.claim()
    writer.commit(b"one")
    writer.put(Commit(first, 1, [0.0], True, encode_batches([b"copy"])))
    writer.claim()
    writer.put(Commit(first, 2, [0.0], True, encode_batches([b"of an owner that lost the shard"])))
    writer.commit(b"two", b"three", parts=3)
    writer.release()
    writer.claim()
    found = writer.read()
    assert (texts(found), found.damages) == ([b"one", b"two", b"three"], [])


def test_messages_behind_a_hole_count() -> None:
    """An unreadable message in the middle, and a gap."""

    def check(lose: Callable[[Writer, int], None], reason: str) -> None:
        writer = Writer()
        writer.claim()
        writer.commit(b"one")
        lost = writer.commit(b"two")
        writer.commit(b"three")
        writer.claim()
        lose(writer, lost)
        found = writer.read()
        assert texts(found) == [b"one", b"three"]
        assert places(found) == [(lost, lost)]
        assert reason in found.damages[0].reason

    def damage(writer: Writer, sequence: int) -> None:
        writer.log.messages[sequence] = (b"nonsense", 0)

    check_every_row(check, [(Writer.lose, MISSING), (damage, "cannot be read: ")])


def test_a_claim_in_a_hole_is_known_by_the_commits_behind_it() -> None:
    """The earlier owner still wrote behind the hole: that is void."""
    writer = Writer()
    first = writer.claim()
    writer.commit(b"one")
    second = writer.claim()
    writer.commit(b"two")
    writer.put(Commit(first, 2, [0.0], True, encode_batches([b"void"])))
    writer.commit(b"three")
    writer.claim()
    writer.lose(second, second + 1)
    found = writer.read()
    assert (texts(found), places(found)) == ([b"one", b"three"], [(second, second + 1)])


def test_a_number_that_does_not_fit_into_the_hole_is_void() -> None:
    writer = Writer()
    first = writer.claim()
    writer.commit(b"one")
    hole = writer.commit(b"two")
    writer.put(Commit(first, 9, [0.0], True, encode_batches([b"void"])))
    writer.claim()
    writer.lose(hole)
    assert texts(writer.read()) == [b"one"]


def test_a_log_without_its_beginning() -> None:
    """It was purged by hand up to a commit."""
    writer = Writer()
    writer.claim()
    writer.commit(b"one")
    kept = writer.commit(b"two")
    writer.claim()
    writer.log.purge(kept)
    found = writer.read()
    assert (texts(found), places(found)) == ([b"two"], [(1, kept - 1)])
    assert "purged, or its beginning is lost" in found.damages[0].reason


def test_a_commit_counts_only_with_all_of_its_messages() -> None:
    """Each of three is lost once. The others are named, and the commits before and behind count."""
    for lost in range(3):
        writer = Writer()
        writer.claim()
        before = writer.commit(b"one")
        writer.commit(b"two" * 50, parts=3)
        writer.commit(b"three")
        writer.claim()
        writer.lose(before + 1 + lost)
        found = writer.read()
        assert texts(found) == [b"one", b"three"], lost
        left_out = [sequence for first, last in places(found) for sequence in range(first, last + 1)]
        assert sorted(left_out) == [before + 1, before + 2, before + 3], lost
        assert [each.reason for each in found.damages if each.reason != MISSING] == [CUT] * (len(found.damages) - 1)


def test_a_void_message_between_two_fragments_may_be_lost() -> None:
    writer = Writer()
    first = writer.claim()
    second = writer.claim()
    body = encode_batches([b"in two parts"])
    writer.put(Commit(second, 1, [], False, body[:4]))
    void = writer.put(Commit(first, 1, [0.0], True, encode_batches([b"void"])))
    writer.put(Commit(second, 2, [0.0], True, body[4:]))
    writer.claim()
    writer.lose(void)
    found = writer.read()
    assert (texts(found), places(found)) == ([b"in two parts"], [(void, void)])


def test_a_commit_of_an_owner_that_died_is_no_damage() -> None:
    writer = Writer()
    epoch = writer.claim()
    writer.put(Commit(epoch, 1, [], False, b"begun"))
    writer.claim()
    writer.commit(b"two")
    found = writer.read()
    assert (texts(found), found.damages) == ([b"two"], [])


def test_commits_of_another_cluster_do_not_count() -> None:
    writer = Writer()
    writer.claim()
    writer.commit(b"one")
    foreign = writer.claim("another")
    writer.commit(b"foreign")
    writer.claim()
    found = writer.read()
    assert (texts(found), places(found)) == ([b"one"], [(foreign, foreign)])
    assert "of the cluster another, not of id" in found.damages[0].reason


def test_another_replica_may_have_the_message() -> None:
    writer = Writer()
    writer.claim()
    lost = writer.commit(b"one")
    writer.claim()
    whole, asked = writer.log.messages[lost], []

    async def ask(first: int, count: int) -> DirectBatch:
        asked.append(first)
        if len(asked) == TRIES:
            writer.log.messages[lost] = whole
        return writer.log.batch(first, count, 1 << 20, writer.log.last)

    writer.lose(lost)
    found = DamagedLog(SHARD, "id", asyncio.run(read_entries(ask, 1, writer.log.last)))
    assert (texts(found), found.damages) == ([b"one"], [])


def test_a_log_of_a_later_release_is_not_damaged() -> None:
    writer = Writer()
    writer.put(Claim(2, "a", "a1", b"n", "9.0", "id"))
    with pytest.raises(TransferError, match="a log of version 2"):
        writer.read()


# ---------------------------------------------------------------- jobs


def id_of(number: int) -> bytes:
    return bytes([number]) * 15 + bytes([SHARD])


def head_of(number: int, extras: str | None = None, retry_of: bytes | None = None) -> list[Any]:
    return [id_of(number), "s", '{"durable":true}', -1.0, None, None, retry_of, None, extras]


def batch(**rows: Any) -> bytes:
    return msgspec.msgpack.encode(Batch(**rows))


def job(number: int, payload: bytes | None = b"payload", **facts: Any) -> bytes:
    return batch(jobs=[(head_of(number, **facts), payload)])


def status(number: int, *, is_done: bool = True) -> bytes:
    """Return a batch with a status: it is done, or returned to its queue."""
    row: list[Any] = [0.0, 1, 0, None, None, None, None, None, "done" if is_done else None, None, 0, 1e6, None, 0]
    return batch(statuses=[(id_of(number), row, "")])


def salvaged(writer: Writer, *lost: int, shard: int = SHARD) -> SalvagedShard:
    writer.claim()
    writer.lose(*lost)
    return SalvagedShard(shard, DamagedLog(shard, "id", writer.entries()))


def told(shard: SalvagedShard) -> dict[str, list[int]]:
    """Return the first bytes of the ids that are named, by the reason."""
    return {each.reason: [id[0] for id in each.jobs] for each in shard.damages if not each.messages}


def exported(shard: SalvagedShard) -> dict[int, tuple[bytes, bool]]:
    """Return the payload of each job, and whether it has ended."""
    return {job.id[0]: (job.payload, kept.outcome is not None) for kept, job in shard.jobs()}


def test_a_job_whose_first_row_is_lost_is_named() -> None:
    """Its later status is in the log, so its id is known. Jobs of other messages are exported as they are."""
    writer = Writer()
    writer.claim()
    writer.commit(job(1))
    lost = writer.commit(job(2), job(3))
    writer.commit(status(2), job(4))
    writer.commit(status(1))
    found = salvaged(writer, lost)
    assert exported(found) == {1: (b"payload", True), 4: (b"payload", False)}
    assert told(found) == {NO_FIRST_ROW: [2], KEYS: []}


def test_a_job_that_may_have_changed_in_the_hole_is_exported_as_it_was_before() -> None:
    """Job 1 has ended there, and nothing of that is left. Job 2 has a newer row. Job 3 had ended before."""
    writer = Writer()
    writer.claim()
    writer.commit(job(1), job(2), job(3), status(3))
    lost = writer.commit(status(1))
    writer.commit(status(2, is_done=False))
    found = salvaged(writer, lost)
    assert exported(found) == {1: (b"payload", False), 2: (b"payload", False), 3: (b"payload", True)}
    assert told(found) == {OLDER: [1], KEYS: []}


def test_a_job_without_its_payload_is_named_unless_it_has_ended() -> None:
    """A retry has the payload of the job that it retries; and new options of a job are a row without a payload."""
    writer = Writer()
    writer.claim()
    lost = writer.commit(job(1))
    writer.commit(job(2, None, retry_of=id_of(1)), job(3, None, retry_of=id_of(1)), status(3))
    writer.commit(batch(heads=[head_of(4)]))
    found = salvaged(writer, lost)
    assert exported(found) == {3: (b"", True)}
    assert told(found) == {NO_PAYLOAD: [2, 4], KEYS: []}


def test_rows_that_cannot_be_decoded_are_left_out() -> None:
    writer = Writer()
    writer.claim()
    bad = writer.commit(
        b"\x01", job(1), batch(jobs=[([id_of(2), *head_of(2)[1:2], "no options", *head_of(2)[3:]], b"")])
    )
    found = salvaged(writer)
    assert exported(found) == {1: (b"payload", False)}
    assert told(found) == {NO_ROWS: [2], OLDER: [1], KEYS: []}
    assert [(each.first, each.last) for each in found.damages if each.messages] == [(bad, bad)]


def test_groups_that_have_lost_jobs_or_their_record_are_named() -> None:
    """Group 9 has one job of three, and the outcome of another one. Group 8 has no record."""
    writer = Writer()
    writer.claim()
    record = '{"owner":"local","size":3,"services":["s"],"gone":".d."}'
    writer.commit(batch(notes=[("group/" + id_of(9).hex(), record)]))
    writer.commit(job(1, extras=f'{{"group":"{id_of(9).hex()}","place":0}}'))
    lost = writer.commit(job(2, extras=f'{{"group":"{id_of(9).hex()}","place":2}}'))
    writer.commit(job(3, extras=f'{{"group":"{id_of(8).hex()}","place":0}}'))
    found = salvaged(writer, lost)
    assert sorted(exported(found)) == [1, 3]
    assert told(found) == {OLDER: [1], NO_GROUP: [8], NO_MEMBERS: [9], KEYS: []}


def test_rows_that_a_cleaning_has_written_again_are_whole() -> None:
    """The hole is before the mark, and the owner died before it purged. A status may come before its job."""
    writer = Writer()
    writer.claim()
    lost = writer.commit(job(1))
    writer.claim()
    writer.commit(status(1))
    writer.commit(batch(jobs=[(head_of(1), b"payload")], statuses=[]))
    found = salvaged(writer, lost)
    assert exported(found) == {1: (b"payload", True)}
    assert told(found) == {KEYS: []}


def test_the_shard_of_schedules_says_that_they_may_be_older() -> None:
    writer = Writer()
    writer.claim()
    lost = writer.commit(batch(notes=[("schedule/x", "{}")]))
    found = salvaged(writer, lost, shard=0)
    assert (told(found), found.values) == ({f"{KEYS}; {VALUES}": []}, {})


def test_an_import_whose_last_mark_is_lost_does_not_end_the_export() -> None:
    writer = Writer()
    writer.claim()
    writer.commit(batch(notes=[("import/f1", "begun")]))
    lost = writer.commit(batch(notes=[("import/f1", "done")]))
    found = salvaged(writer, lost)
    assert any("the import of file f1 may not have ended" in each.reason for each in found.damages)


# ---------------------------------------------------------------- sentences


def test_a_sentence_says_shard_messages_reason_and_ids() -> None:
    ids = tuple(id_of(number) for number in range(12))
    cases = [
        (Damage(3, MISSING, 5, 5), "shard 3: message 5 (1 message): missing"),
        (Damage(3, MISSING, 5, 7), "shard 3: messages 5 to 7 (3 messages): missing"),
        (Damage(3, KEYS), f"shard 3: {KEYS}"),
        (Damage(3, "gone", jobs=ids[:1]), f"shard 3: 1 id: gone: {ids[0].hex()}"),
        (
            Damage(3, "gone", jobs=ids),
            f"shard 3: 12 ids: gone: {', '.join(each.hex() for each in ids[:10])} and 2 more, which the file names",
        ),
    ]

    def check(damage: Damage, sentence: str) -> None:
        assert damage.sentence == sentence

    check_every_row(check, cases)
