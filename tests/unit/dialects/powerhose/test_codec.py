"""Powerhose messages, byte for byte."""

from __future__ import annotations

import pytest

from dragoman.carriers.malformed import Malformed
from dragoman.dialects.powerhose import codec
from dragoman.dialects.powerhose.messages import Job, Ping, Remove, Wake

ID = b"0123abcd"


def refusal(call: object, *args: object) -> str:
    with pytest.raises(Malformed) as caught:
        call(*args)  # type: ignore[operator]
    assert caught.value.detail
    return caught.value.reason


# -------------------------------------------------------------------- what a worker says to the master


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"PING:::ipc://worker-routing.ipc", Ping("ipc://worker-routing.ipc")),
        (b"PING:::tcp://127.0.0.1:9001", Ping("tcp://127.0.0.1:9001")),
        (b"PING", Ping(None)),
        (b"PING:::", Ping("")),
        (b"REMOVE:::tcp://127.0.0.1:9001", Remove("tcp://127.0.0.1:9001")),
        (b"REMOVE", Remove(None)),
        (b"REMOVE:::", Remove("")),
        (b"PING:::a:::b", Ping("a:::b")),
        (b"PING::::", Ping(":")),
        ("PING:::ipc:///tmp/größe".encode(), Ping("ipc:///tmp/größe")),
        (bytearray(b"PING:::x"), Ping("x")),
    ],
)
def test_a_registration_is_read(body: bytes, word: object) -> None:
    assert codec.read_registration([b"", body]) == word


@pytest.mark.parametrize(
    "body",
    [b"", b"ping", b"PINGS", b"PING::x", b" PING", b"PING\n", b"PONG", b"GIVE", b"JOBRES:::1:::x", b":::", b"\xff"],
)
def test_any_other_word_is_unknown(body: bytes) -> None:
    assert refusal(codec.read_registration, [b"", body]) == "unknown word"


def test_an_endpoint_that_is_not_text_is_malformed() -> None:
    assert refusal(codec.read_registration, [b"", b"PING:::\xff\xfe"]) == "bad endpoint"
    assert refusal(codec.read_registration, [b"", b"REMOVE:::\xc3"]) == "bad endpoint"


def test_a_registration_has_4096_bytes_at_most() -> None:
    assert codec.read_registration([b"", b"PING:::" + b"x" * 4089]) == Ping("x" * 4089)
    assert refusal(codec.read_registration, [b"", b"PING:::" + b"x" * 4090]) == "too long"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ([], "too few frames"),
        ([b"PING"], "too few frames"),
        ([b""], "too few frames"),
        ([b"x", b"PING"], "no delimiter"),
        ([b"", b"PING", b"tcp://127.0.0.1:9001"], "unexpected frames"),
        ([b"", b"", b"PING"], "unexpected frames"),
        ([b"x", b"", b"PING"], "unexpected frames"),
    ],
)
def test_every_message_is_one_frame_behind_an_empty_one(message: list[bytes], reason: str) -> None:
    assert refusal(codec.read_registration, message) == reason
    assert refusal(codec.read_order, message) == reason


# -------------------------------------------------------------------- what a worker answers to a job


@pytest.mark.parametrize("has_ids", [False, True])
@pytest.mark.parametrize("result", [b"", b"x", b"a:::b", b":::", b"::::", ID, ID + b":::", bytes(range(256))])
def test_a_result_behind_the_jobs_id_is_stripped_of_it(result: bytes, has_ids: bool) -> None:
    assert codec.read_result(b"JOBRES:::" + ID + b":::" + result, ID, has_ids) == (result, True)


@pytest.mark.parametrize("result", [b"", b"x", b"a:::b", b":::x", b"other:::x", ID + b"::x", ID + b"x:::y", ID[:-1]])
def test_r56_what_begins_with_no_id_is_the_result_as_it_stands(result: bytes) -> None:
    assert codec.read_result(b"JOBRES:::" + result, ID, False) == (result, False)


@pytest.mark.parametrize("result", [b"", b"x", b"a:::b", b"other:::x", ID + b"x:::y", ID[:-1] + b":::y"])
def test_r56_the_same_of_a_worker_that_names_ids_is_foreign(result: bytes) -> None:
    assert refusal(codec.read_result, b"JOBRES:::" + result, ID, True) == "foreign job id"


@pytest.mark.parametrize("has_ids", [False, True])
def test_the_id_alone_is_an_empty_result(has_ids: bool) -> None:
    """The first field is the job's id, and nothing follows it."""
    assert codec.read_result(b"JOBRES:::" + ID, ID, has_ids) == (b"", True)


@pytest.mark.parametrize(
    "body", [b"", b"JOBRES", b"JOBRES::x", b"JOBRESULT:::x", b"GIVE", b"jobres:::x", b"\0JOBRES:::"]
)
@pytest.mark.parametrize("has_ids", [False, True])
def test_what_does_not_begin_with_jobres_is_garbage(body: bytes, has_ids: bool) -> None:
    assert refusal(codec.read_result, body, ID, has_ids) == "garbage for JOBRES"


def test_a_large_result_comes_as_a_bytearray_and_is_read_like_any_other() -> None:
    body = bytearray(b"JOBRES:::" + ID + b":::" + bytes(100_000))
    assert codec.read_result(body, ID, True) == (bytes(100_000), True)


# -------------------------------------------------------------------- what a master says to a worker


@pytest.mark.parametrize("data", [b"", b"x", b"a:::b", b":::", bytes(range(256))])
def test_a_job_goes_out_and_comes_in_as_it_is(data: bytes) -> None:
    assert codec.write_job(ID, data) == [b"", b"JOB:::" + ID + b":::" + data]
    assert codec.read_order(codec.write_job(ID, data)) == Job(ID, data)
    assert codec.read_order([b"", bytearray(codec.write_job(ID, data)[1])]) == Job(ID, data)


def test_wake_is_read() -> None:
    assert codec.read_order([b"", b"WAKE"]) == Wake()


@pytest.mark.parametrize(
    "body", [b"", b"WAKE:::", b"WAKEUP", b"wake", b"JOB", b"JOB:::", b"JOB:::id", b"JOBS:::1:::2", b"PING"]
)
def test_any_other_order_is_unknown(body: bytes) -> None:
    assert refusal(codec.read_order, [b"", body]) == "unknown word"


def test_what_a_worker_of_ours_writes() -> None:
    assert codec.write_ping("tcp://h:9001") == [b"", b"PING:::tcp://h:9001"]
    assert codec.write_remove("tcp://h:9001") == [b"", b"REMOVE:::tcp://h:9001"]
    assert codec.write_result(ID, b"a:::b") == [b"", b"JOBRES:::" + ID + b":::a:::b"]
    assert codec.read_registration(codec.write_ping("ipc://ö")) == Ping("ipc://ö")
    assert codec.read_registration(codec.write_remove("ipc://ö")) == Remove("ipc://ö")


@pytest.mark.parametrize("result", [b"", b"x", b"a:::b"])
def test_a_result_goes_out_and_comes_in_as_it_is(result: bytes) -> None:
    assert codec.read_result(codec.write_result(ID, result)[1], ID, True) == (result, True)
