"""Shards of imported jobs: what belongs together stays together, and a key decides."""

from __future__ import annotations

import io
import json

import pytest

from dragoman.cluster.ranks import shard_of_key
from dragoman.transfer.errors import TransferError
from dragoman.transfer.exported_job import ExportedJob
from dragoman.transfer.file_index import FileIndex
from dragoman.transfer.jobs_file import FileReader, FileWriter, no_progress
from dragoman.transfer.shard_choice import choose_shards, watches
from exported_jobs import job_with

SHARDS = 7
GROUP = b"\x10" * 15 + b"\x04"


def index_of(*jobs: ExportedJob, groups: tuple[bytes, ...] = ()) -> FileIndex:
    out = io.BytesIO()
    writer = FileWriter(out.write, "0.1.0", "0f" * 16, "folder", 1.0)
    for job in jobs:
        writer.add_job(job)
    for group in groups:
        writer.add_value(f"group/{group.hex()}", "{}")
    writer.end()
    return FileIndex(FileReader(io.BytesIO(out.getvalue())), no_progress)


def id_with(number: int, last: int) -> bytes:
    return bytes((number,)) * 15 + bytes((last,))


def test_without_a_key_it_is_the_shard_that_the_id_names() -> None:
    plain, call = id_with(1, 12), id_with(2, 255)
    chosen = choose_shards(index_of(job_with(plain), job_with(call)), SHARDS)
    assert chosen[plain] == 12 % SHARDS
    assert 0 <= chosen[call] < SHARDS, "no shard has this byte, but the job needs one"


def test_a_key_decides() -> None:
    id = id_with(1, 0)
    for key in ("a", "b", "c"):
        chosen = choose_shards(index_of(job_with(id, key=key)), SHARDS)
        assert chosen[id] == shard_of_key("local", "later", key, SHARDS)


def test_a_group_and_a_job_that_waits_for_it_are_together() -> None:
    members = [id_with(number, number) for number in range(1, 4)]
    jobs = [job_with(id, extras=json.dumps({"group": GROUP.hex(), "place": place})) for place, id in enumerate(members)]
    last = id_with(9, 250)
    waiting = job_with(last, extras=json.dumps({"after": [GROUP.hex()]}))
    chosen = choose_shards(index_of(*jobs, waiting, groups=(GROUP,)), SHARDS)
    assert set(chosen) == {GROUP, last, *members}
    assert set(chosen.values()) == {4}


def key_elsewhere() -> str:
    """Return a key of another shard than that of the key 'a'."""
    shard = shard_of_key("local", "later", "a", SHARDS)
    return next(key for key in map(str, range(20)) if shard_of_key("local", "later", key, SHARDS) != shard)


def test_keys_of_several_shards_that_belong_together_are_named() -> None:
    first, second = id_with(1, 1), id_with(2, 2)
    extras = [json.dumps({"group": GROUP.hex(), "place": place}) for place in range(2)]
    jobs = job_with(first, key="a", extras=extras[0]), job_with(second, key=key_elsewhere(), extras=extras[1])
    with pytest.raises(TransferError, match=f"2 jobs with keys belong together.*{first.hex()}, {second.hex()}"):
        choose_shards(index_of(*jobs, groups=(GROUP,)), SHARDS)
    assert set(choose_shards(index_of(*jobs, groups=(GROUP,)), 1).values()) == {0}


def test_a_job_waits_for_one_of_another_shard_only_if_their_keys_need_it() -> None:
    first, second, third = id_with(1, 1), id_with(2, 2), id_with(3, 3)
    other, after = key_elsewhere(), json.dumps({"after": [first.hex()]})
    jobs = job_with(first, key="a"), job_with(second, key=other, extras=after), job_with(third, extras=after)
    index = index_of(*jobs)
    chosen = choose_shards(index, SHARDS)
    assert chosen[first] == chosen[third] == shard_of_key("local", "later", "a", SHARDS)
    assert chosen[second] == shard_of_key("local", "later", other, SHARDS)
    assert watches(index, chosen) == [(first, chosen[second])]


def test_jobs_of_a_folder_come_behind_those_that_they_wait_for() -> None:
    """Shards are one after the other in a file: a job may be before one that it waits for."""
    first, second, third = id_with(1, 1), id_with(2, 2), id_with(3, 3)
    jobs = (
        job_with(first, extras=json.dumps({"after": [second.hex()]})),
        job_with(second, extras=json.dumps({"after": [third.hex()]})),
        job_with(third),
    )
    assert index_of(*jobs).numbers("cluster") == {third: 1, second: 2, first: 3}
    assert index_of(*jobs).numbers("folder") == {first: 1, second: 2, third: 3}
