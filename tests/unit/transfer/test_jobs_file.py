"""The file of an export: every job comes back as it was, and a file that is not whole is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from hashlib import sha256

import pytest

from case_tables import check_every_row
from dragoman.transfer.damage import Damage, damage_of
from dragoman.transfer.errors import BadFile, TransferError
from dragoman.transfer.exported_job import ExportedJob
from dragoman.transfer.file_index import FileIndex
from dragoman.transfer.jobs_file import FileReader, FileWriter, no_progress
from exported_jobs import job_with

IDENTITY = "0f" * 16
HISTORY = '[[1,"w","failed","no",1790000001000,1790000002000],[2,"w","lost",""]]'
ENDED = [None, 2, 1, HISTORY, None, None, 1_790_000_003.5, None, "failed", "no", 1, 1_790_009_999.0, b"\xff\x01", 0]
RUNNING = [1_790_000_000.5, 1, 0, None, b"t" * 16, 2, 1_790_000_003.25, "w1", None, None, 0, None, None, 1]


def jobs() -> list[ExportedJob]:
    extras = '{"tenant":"acme","after":["' + "22" * 16 + '"]}'
    full = job_with(b"\x01" * 16, key="k\u20ac", extras=extras)
    full.head[6], full.head[7], full.payload = b"\x09" * 16, "alice", b"\x00\xff"
    ended, running = job_with(b"\x02" * 16), job_with(b"\x03" * 16)
    ended.status, running.status = ENDED, RUNNING
    return [full, ended, running]


def made(*, values: tuple[tuple[str, str], ...] = (("cron/x", "{}"), ("pause/y", "me"))) -> bytes:
    out = io.BytesIO()
    writer = FileWriter(out.write, "0.1.0", IDENTITY, "folder", 1.0)
    for job in jobs():
        writer.add_job(job)
    for key, text in values:
        writer.add_value(key, text)
    writer.end()
    return out.getvalue()


def test_everything_comes_back() -> None:
    reader = FileReader(io.BytesIO(made()))
    found = list(reader.read())
    read = [(each.head, each.payload, each.status) for each in found if isinstance(each, ExportedJob)]
    assert read == [(each.head, each.payload, each.status) for each in jobs()]
    assert found[3:] == [("cron/x", "{}"), ("pause/y", "me")]
    assert (reader.identity, reader.counts["jobs"], reader.counts["schedules"]) == (IDENTITY, 3, 1)


def test_damaged_places_come_back_and_are_a_part_of_the_whole() -> None:
    damages = [Damage(2, "missing", 5, 7), Damage(3, "left out", jobs=(b"\x01" * 16, b"\x02" * 16)), Damage(0, "older")]
    out = io.BytesIO()
    writer = FileWriter(out.write, "0.1.0", IDENTITY, "cluster", 1.0)
    writer.add_damage(damages[0])
    writer.add_job(jobs()[0])
    for damage in damages[1:]:
        writer.add_damage(damage)
    writer.end()
    reader = FileReader(io.BytesIO(out.getvalue()))
    for _ in range(2):  # an import reads it twice
        assert [each.id for each in reader.read() if isinstance(each, ExportedJob)] == [b"\x01" * 16]
        assert reader.damages == damages
    without = [line for line in out.getvalue().splitlines(keepends=True) if b"older" not in line]
    with pytest.raises(BadFile, match="damaged or edited"):
        list(FileReader(io.BytesIO(b"".join(without))).read())


def test_a_damaged_place_that_cannot_be_read_is_refused() -> None:
    for text in ("[]", "1", "{}", '{"shard":1e999,"reason":"x"}', '{"shard":1,"reason":"x","jobs":["zz"]}'):
        with pytest.raises(BadFile, match="a damaged place cannot be read"):
            damage_of({"damage": json.loads(text)})


def test_times_move_together() -> None:
    ended = jobs()[1].shifted(-10.0)
    assert ended.created == 1_789_999_990.25
    assert ended.status is not None
    assert (ended.status[6], ended.status[11]) == (1_789_999_993.5, 1_790_009_989.0)
    assert json.loads(ended.status[3]) == [
        [1, "w", "failed", "no", 1_789_999_991_000, 1_789_999_992_000],
        [2, "w", "lost", ""],
    ]
    again = ended.shifted(10.0)
    assert (again.head, again.status) == (jobs()[1].head, jobs()[1].status)


def ended_again(lines: list[bytes], counts: dict[str, int] | None = None) -> bytes:
    """Return lines with an end that fits, as somebody would write who edits the file by hand."""
    end = json.loads(lines[-1])
    body = b"".join(lines[:-1])
    end["sha256"], end["lines"], end["end"] = sha256(body).hexdigest(), len(lines) - 1, counts or end["end"]
    return body + json.dumps(end).encode() + b"\n"


def lines() -> list[bytes]:
    return made().splitlines(keepends=True)


def test_a_file_that_is_not_whole_is_refused() -> None:
    cases: list[tuple[str, Callable[[], bytes], str]] = [
        ("empty", lambda: b"", "cut off"),
        ("a byte less", lambda: made()[:-1], "cut off"),
        ("no end", lambda: b"".join(lines()[:-1]), "cut off"),
        ("within a line", lambda: made()[:400], "cut off"),
        ("edited", lambda: made().replace(b'"key":"k', b'"key":"l'), "damaged or edited"),
        ("a line less", lambda: b"".join([*lines()[:2], *lines()[3:]]), "damaged or edited"),
        ("a line more", lambda: made() + b"{}\n", "goes on after its last line"),
        ("other counts", lambda: ended_again(lines(), {"jobs": 4}), "the file says that it has"),
        ("no json", lambda: b"hello\n", "not a JSON object"),
        ("another file", lambda: b'{"a":1}\n', "this is not a file of `dragoman export`"),
        ("newer", lambda: made().replace(b'"format":1', b'"format":2'), "format 2; this release reads 1"),
        ("twice", lambda: ended_again([*lines()[:2], *lines()[1:]]), "damaged or edited|is in the file twice"),
        ("service", lambda: made().replace(b'"service":"later"', b'"service":7', 1), "service or options"),
        ("unknown", lambda: made().replace(b'"service"', b'"more":1,"service"', 1), "unknown fields: more"),
    ]

    def check(name: str, data: Callable[[], bytes], told: str) -> None:
        with pytest.raises(BadFile, match=told):
            FileIndex(FileReader(io.BytesIO(data())), no_progress)

    check_every_row(check, cases)


def test_values_of_an_unknown_kind_are_named() -> None:
    with pytest.raises(TransferError, match="a value 'colour/x', which this release cannot carry over"):
        made(values=(("colour/x", "red"),))


def test_jobs_of_a_cluster_are_numbered_by_time_and_behind_those_that_they_wait_for() -> None:
    out = io.BytesIO()
    writer = FileWriter(out.write, "0.1.0", IDENTITY, "cluster", 1.0)
    late, early, waiting = b"\x01" * 16, b"\x02" * 16, b"\x03" * 16
    writer.add_job(job_with(late, created=30.0))
    writer.add_job(job_with(waiting, created=5.0, extras=json.dumps({"after": [late.hex()]})))
    writer.add_job(job_with(early, created=10.0))
    writer.end()
    index = FileIndex(FileReader(io.BytesIO(out.getvalue())), no_progress)
    assert index.numbers("cluster") == {early: 1, late: 2, waiting: 3}
    assert index.numbers("folder") == {late: 1, waiting: 2, early: 3}
