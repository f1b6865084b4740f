"""Requests to JetStream and their answers, as nats-server 2.15.1 writes them; and answers that are none."""

from __future__ import annotations

import json

import pytest

from case_tables import check_every_row
from dragoman.carriers.nats_headers import Headers, read_headers, write_headers
from dragoman.cluster.direct_batch import DirectBatch
from dragoman.cluster.jetstream import (
    ApiError,
    ApiRequest,
    Append,
    AppendOutcome,
    Replica,
    StoredMessage,
    StreamConfig,
    StreamState,
    account_info,
    append,
    direct_batch,
    direct_get,
    direct_last,
    message_get,
    nanoseconds,
    read_account,
    read_append,
    read_message,
    read_purged,
    read_stream,
    stream_create,
    stream_info,
    stream_purge,
)
from dragoman.cluster.requests import Answer, AnswerKind

TIME = b"2026-11-18T02:24:09.546599887Z"
NANOSECONDS = 1_794_968_649_546_599_887


def reply(payload: bytes, headers: bytes = b"") -> Answer:
    return Answer(AnswerKind.REPLY, read_headers(headers), payload)


# ---------------------------------------------------------------- requests


def test_every_request() -> None:
    def check(request: ApiRequest, subject: bytes, body: object) -> None:
        assert request.subject == subject
        assert (json.loads(request.payload) if request.payload else None) == body
        assert request.headers == b""

    config = StreamConfig("DGM_c_00", ("dgm.c.log.00",), 3, 1 << 30, (("id", "x"),))
    created = {
        "name": "DGM_c_00", "subjects": ["dgm.c.log.00"], "num_replicas": 3, "max_bytes": 1 << 30,
        "metadata": {"id": "x"}, "storage": "file", "retention": "limits", "discard": "new", "max_age": 0,
        "allow_direct": True, "deny_delete": True, "deny_purge": False,
    }  # fmt: skip
    check_every_row(
        check,
        [
            (account_info(), b"$JS.API.INFO", None),
            (stream_create(config), b"$JS.API.STREAM.CREATE.DGM_c_00", created),
            (stream_info("S"), b"$JS.API.STREAM.INFO.S", None),
            (stream_purge("S", 7), b"$JS.API.STREAM.PURGE.S", {"seq": 7}),
            (message_get("S", 7), b"$JS.API.STREAM.MSG.GET.S", {"seq": 7}),
            (direct_get("S", 7), b"$JS.API.DIRECT.GET.S", {"seq": 7}),
            (direct_batch("S", 7, 100), b"$JS.API.DIRECT.GET.S", {"seq": 7, "batch": 100}),
            (direct_batch("S", 7, 9, 5), b"$JS.API.DIRECT.GET.S", {"seq": 7, "batch": 9, "max_bytes": 5}),
            (direct_last("S", ["a"], 0, 9), b"$JS.API.DIRECT.GET.S", {"multi_last": ["a"], "batch": 9}),
            (direct_last("S", ["a"], 4, 9), b"$JS.API.DIRECT.GET.S", {"multi_last": ["a"], "batch": 9, "up_to_seq": 4}),
        ],
    )


def test_an_append_names_the_place_and_the_stream() -> None:
    request = append(b"dgm.c.log.00", b"data", 7, "S")
    assert (request.subject, request.payload) == (b"dgm.c.log.00", b"data")
    assert request.headers == b"NATS/1.0\r\nNats-Expected-Last-Sequence: 7\r\nNats-Expected-Stream: S\r\n\r\n"


def test_a_name_that_would_change_the_subject_is_refused() -> None:
    for name in ("", "a.b", "a b", "*", ">", "a\r\n", "ü", "a/b"):
        with pytest.raises(ValueError, match="is not the name of a stream"):
            stream_info(name)
    with pytest.raises(ValueError, match="sequences begin at 1"):
        stream_purge("S", 0)


# ---------------------------------------------------------------- answers


def test_the_state_of_a_stream_is_read() -> None:
    found = read_stream(
        reply(
            b'{"type":"io.nats.jetstream.api.v1.stream_info_response","total":0,"config":{"name":"S","subjects":["s"],'
            b'"num_replicas":3,"allow_direct":true,"deny_delete":true,"metadata":{"_nats.ver":"2.15.1","id":"x"}},'
            b'"state":{"messages":2,"bytes":99,"first_seq":4,"last_seq":5},"cluster":{"name":"test","leader":"n1",'
            b'"replicas":[{"name":"n2","current":true,"active":1500000000,"peer":"p2"},'
            b'{"name":"n3","current":false,"offline":true}]}}'
        )
    )
    state = ("S", ("s",), 3, {"_nats.ver": "2.15.1", "id": "x"}, 4, 5, 2, 99, "n1", 2)
    others = (Replica("n2", "p2", True, False, 1.5), Replica("n3", "", False, True, 0.0))
    assert found == StreamState(*state, allows_direct=True, denies_delete=True, others=others)


def test_an_empty_stream_begins_after_its_last_sequence() -> None:
    """After a purge the server reports first_seq 6; a new stream has 0."""
    for state, expected in (
        (b'{"messages":0,"first_seq":6,"last_seq":5}', (6, 5)),
        (b'{"messages":0,"first_seq":0,"last_seq":0}', (1, 0)),
    ):
        found = read_stream(reply(b'{"config":{"name":"S"},"state":' + state + b"}"))
        assert isinstance(found, StreamState)
        assert (found.first, found.last) == expected


def test_appends_are_stored_refused_or_unknown() -> None:
    def check(answer: Answer, outcome: AppendOutcome, sequence: int) -> None:
        found = read_append(answer)
        assert (found.outcome, found.sequence) == (outcome, sequence)

    wrong = b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"S","seq":0}'
    untold = b'{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"S","seq":0}'
    full = b'{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"S","seq":0}'
    other = b'{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},"seq":0}'
    check_every_row(
        check,
        [
            (reply(b'{"stream":"S","seq":7}'), AppendOutcome.STORED, 7),
            (reply(b'{"stream":"S","seq":7,"duplicate":true,"domain":"d"}'), AppendOutcome.STORED, 7),
            (reply(wrong), AppendOutcome.WRONG_SEQUENCE, 5),
            (reply(untold), AppendOutcome.WRONG_SEQUENCE, 0),
            (reply(full), AppendOutcome.REFUSED, 0),
            (reply(other), AppendOutcome.REFUSED, 0),
            (reply(b"", write_headers([], 408, b"Bad Request")), AppendOutcome.REFUSED, 0),
            (Answer(AnswerKind.NO_RESPONDERS), AppendOutcome.NOT_STORED, 0),
            (Answer(AnswerKind.NOT_SENT), AppendOutcome.NOT_STORED, 0),
            (Answer(AnswerKind.TIMED_OUT), AppendOutcome.UNKNOWN, 0),
            (Answer(AnswerKind.DISCONNECTED), AppendOutcome.UNKNOWN, 0),
            (Answer(AnswerKind.TOO_LARGE), AppendOutcome.UNKNOWN, 0),
            (reply(b"{}"), AppendOutcome.UNKNOWN, 0),
            (reply(b"what?"), AppendOutcome.UNKNOWN, 0),
            (reply(b"[" * 9000), AppendOutcome.UNKNOWN, 0),
            (reply(b'{"seq":"7"}'), AppendOutcome.UNKNOWN, 0),
        ],
    )
    assert read_append(reply(b'{"seq":7,"duplicate":true}')).is_duplicate
    assert read_append(reply(full)) == Append(
        AppendOutcome.REFUSED, error=ApiError(503, 10077, "maximum bytes exceeded")
    )
    assert ApiError(503, 10077, "maximum bytes exceeded").is_full


def test_errors_are_temporary_or_not() -> None:
    def check(error: ApiError, is_temporary: bool) -> None:
        assert error.is_temporary is is_temporary

    check_every_row(
        check,
        [
            (ApiError(0, 0, "no responders"), True),
            (ApiError(503, 10008, "JetStream system temporarily unavailable"), True),
            (ApiError(400, 10005, "no suitable peers for placement, peer offline"), True),
            (ApiError(503, 10077, "maximum bytes exceeded"), False),
            (ApiError(404, 10059, "stream not found"), False),
            (ApiError(503, 10039, "jetstream not enabled for account"), False),
        ],
    )


def test_other_answers_are_read() -> None:
    assert read_purged(reply(b'{"success":true,"purged":3}')) == 3
    assert read_account(reply(b'{"memory":0,"streams":4}')) == 4
    missing = b'{"error":{"code":404,"err_code":10059,"description":"stream not found"},"total":0}'
    assert read_stream(reply(missing)) == ApiError(404, 10059, "stream not found")
    assert read_account(Answer(AnswerKind.TIMED_OUT)) == ApiError(0, 0, "timed out", True)
    assert read_purged(Answer(AnswerKind.NO_RESPONDERS)) == ApiError(0, 0, "no responders", False)


def test_one_message_is_read() -> None:
    found = read_message(
        reply(b'{"message":{"subject":"s","seq":2,"hdrs":"TkFUUy8xLjANCg0K","data":"ZGF0YTE=","time":"' + TIME + b'"}}')
    )
    assert isinstance(found, StoredMessage)
    assert (found.sequence, found.subject, found.payload, found.time) == (2, "s", b"data1", NANOSECONDS)
    assert read_message(reply(b'{"error":{"code":404,"err_code":10037,"description":"no message found"}}')) is None
    for bad in (b'{"message":{"seq":2,"data":"%%","time":"x"}}', b'{"message":{"seq":2,"data":""}}', b"{}"):
        assert isinstance(read_message(reply(bad)), ApiError)


def test_times_of_the_server_are_nanoseconds() -> None:
    assert nanoseconds(TIME) == NANOSECONDS
    assert nanoseconds(b"1970-01-01T00:00:01Z") == 1_000_000_000
    assert nanoseconds(b"1970-01-01T00:00:00.5Z") == 500_000_000
    for bad in (
        b"",
        b"Z",
        b"2026-11-18",
        b"2026-11-18T02:24:09",
        b"2026-11-18T02:24:09.x1Z",
        b"\xffZ",
        b"1" * 99 + b"Z",
    ):
        assert nanoseconds(bad) is None


# ---------------------------------------------------------------- batches


def message(sequence: int, last: int, pending: int = 0, stream: bytes = b"S") -> Answer:
    fields = [
        (b"Own", b"header"),
        (b"Nats-Stream", stream),
        (b"Nats-Subject", b"s.x"),
        (b"Nats-Sequence", b"%d" % sequence),
        (b"Nats-Time-Stamp", TIME),
        (b"Nats-Num-Pending", b"%d" % pending),
        (b"Nats-Last-Sequence", b"%d" % last),
    ]
    return Answer(AnswerKind.REPLY, Headers(0, b"", fields), b"data %d" % sequence)


def end(last: int, pending: int = 0) -> Answer:
    fields = [(b"Nats-Num-Pending", b"%d" % pending), (b"Nats-Last-Sequence", b"%d" % last)]
    return Answer(AnswerKind.REPLY, Headers(204, b"EOB", fields))


def status(code: int) -> Answer:
    return Answer(AnswerKind.REPLY, Headers(code, b"Some Text", []))


def test_a_batch_ends_with_its_marker() -> None:
    batch = DirectBatch("S")
    assert [batch.receive(each, 0.0) for each in (message(3, 0, 4), message(4, 3, 3))] == [True, True]
    assert not batch.is_done
    assert not batch.receive(end(4, 3), 0.0)
    assert (batch.is_done, batch.problem, batch.pending) == (True, "", 3)
    assert [(each.sequence, each.subject, each.time, each.payload) for each in batch.messages] == [
        (3, "s.x", NANOSECONDS, b"data 3"),
        (4, "s.x", NANOSECONDS, b"data 4"),
    ]
    assert not batch.receive(message(5, 4), 0.0)  # a late one
    assert len(batch.messages) == 2


def test_a_batch_with_anything_missing_is_not_used() -> None:
    def check(answers: list[Answer], problem: str) -> None:
        batch = DirectBatch("S")
        assert [batch.receive(each, 0.0) for each in answers] == [True] * (len(answers) - 1) + [False]
        assert problem in batch.problem
        assert bool(batch.problem) == bool(problem)

    check_every_row(
        check,
        [
            ([status(404)], ""),
            ([message(1, 0), message(3, 2)], "before 3 is missing"),
            ([message(2, 1)], "before 2 is missing"),
            ([message(2, 0), message(2, 2)], "before 2 is missing"),
            ([message(1, 0), end(2)], "up to 2 is missing"),
            ([end(1)], "up to 1 is missing"),
            ([end(0)], ""),
            ([message(1, 0), status(404)], "came as an error"),
            ([message(1, 0, stream=b"OTHER")], "another stream"),
            ([status(408)], "408 Some Text"),
            ([Answer(AnswerKind.TIMED_OUT)], "timed out"),
            ([message(1, 0), Answer(AnswerKind.DISCONNECTED)], "disconnected"),
            ([Answer(AnswerKind.NO_RESPONDERS)], "no responders"),
            ([Answer(AnswerKind.REPLY, Headers(0, b"", [(b"Nats-Stream", b"S")]))], "without a sequence"),
        ],
    )


def test_a_gap_in_the_stream_itself_is_not_a_lost_message() -> None:
    """Messages may have been deleted: the log decides about that."""
    batch = DirectBatch("S")
    for answer in (message(1, 0), message(4, 1), end(4)):
        batch.receive(answer, 0.0)
    assert ([each.sequence for each in batch.messages], batch.problem) == ([1, 4], "")
