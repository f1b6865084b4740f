"""Responses of the HTTP API that a client or a worker cannot use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from case_tables import check_every_row
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.http.codec import Membership, Response, read_job, read_join, read_problem

JOB = {
    b"dragoman-attempt": b"ab",
    b"dragoman-service": b"a%20b",
    b"dragoman-job": b"j",
    b"dragoman-attempt-number": b"2",
}


def join_response(token: str = '"t"', lease: str = "10", id: str = "1", wait: str = "2.5") -> Response:
    return Response(200, {}, f'{{"id":{id},"token":{token},"lease":{lease},"wait":{wait}}}'.encode())


def test_a_joined_worker_has_its_token_and_times() -> None:
    assert read_join(join_response()) == Membership(1, "t", 10.0, 2.5)


def test_unusable_responses_are_malformed() -> None:
    """Some of them raised an OverflowError, a RecursionError or, when the token was sent, a UnicodeEncodeError."""

    def check(read: Callable[[Response], object], response: Response, reason: str) -> None:
        with pytest.raises(Malformed) as caught:
            read(response)
        assert caught.value.reason == reason

    check_every_row(
        check,
        [
            (read_join, Response(200, {}, b"[" * 100_000), "bad answer"),
            (read_join, Response(200, {}, b"[]"), "bad answer"),
            (read_join, Response(200, {}, b"{}"), "bad answer"),
            (read_join, join_response(id="1e999"), "bad answer"),
            (read_join, join_response(lease="1" + "0" * 400), "bad answer"),
            (read_join, join_response(lease="NaN"), "bad answer"),
            (read_join, join_response(wait="-1"), "bad answer"),
            (read_join, join_response(wait="Infinity"), "bad answer"),
            (read_join, join_response(token='"\\ud800"'), "bad answer"),
            (read_join, join_response(token='"a\\r\\nb: c"'), "bad answer"),
            (read_job, Response(200, {}, b""), "bad job"),
            (read_job, Response(200, {**JOB, b"dragoman-timeout": b"nan"}, b""), "bad job"),
            (read_job, Response(200, {**JOB, b"dragoman-attempt": b"\xff"}, b""), "bad job"),
            (read_job, Response(200, {**JOB, b"dragoman-attempt": b"\x00\x00"}, b""), "bad job"),  # was sent back so
            (read_problem, Response(404, {}, b"{}"), "no problem"),
            (read_problem, Response(404, {b"content-type": b"application/problem+json"}, b"[]"), "bad problem"),
        ],
    )
