"""Fuzz target: responses of the HTTP API, as clients and workers read them.

The first byte selects the status, a piece has the header fields as the carrier returns them, the rest is the body.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.dialects.http import codec
from dragoman.dialects.http.codec import Membership, Request, Response
from fuzz.input import Input

STATUSES: Final = (b"200", b"204", b"400", b"404", b"409", b"413", b"422", b"502", b"503")
LINE: Final = re.compile(rb"[A-Z]+ /[!-~]*")
FIELDS: Final = re.compile(rb"(?:[a-z-]+: [\t -~\x80-\xff]*\r\n)*")


def test_one_input(data: bytes) -> None:
    given = Input(data)
    status = STATUSES[given.number() % len(STATUSES)]
    fields = given.piece().replace(b"\r", b"")
    response = codec.read_response([status, fields, given.rest()])
    assert response.is_done == status.startswith(b"2")
    assert all(each and each == each.strip() for each in codec.read_recalls(response))
    checks: tuple[Callable[[Response], None], ...] = (check_problem, check_join, check_job)
    for check in checks:
        try:
            check(response)
        except Malformed as error:
            assert len(error.detail) < 200


def check_problem(response: Response) -> None:
    problem = codec.read_problem(response)
    codec.too_large(problem, 5, "a payload")
    codec.operation_error("enqueue", problem)
    codec.packed(problem.failure)
    codec.write_outcome(problem.kind, problem.detail)


def check_join(response: Response) -> None:
    member = codec.read_join(response)
    assert 0 <= member.lease < inf
    assert 0 <= member.wait < inf
    for request in requests_of(member, "attempt"):
        check_request(request)


def check_job(response: Response) -> None:
    attempt, job = codec.read_job(response)
    for request in requests_of(Membership(1, "token", 1.0, 1.0), attempt):
        check_request(request)
    assert job.timeout == job.timeout, "the time-out is not a number"


def requests_of(member: Membership, attempt: str) -> list[Request]:
    return [
        codec.write_next(member, member.wait, [attempt]),
        codec.write_result(member, attempt, b"result"),
        codec.write_failure(member, attempt, Failure("type", "message", "traceback")),
        codec.write_progress(member, attempt, b"half"),
        codec.write_heartbeat(member),
        codec.write_leave(member),
    ]


def check_request(request: Request) -> None:
    """Check that nothing in a response can add lines to the head of a later request."""
    line, fields, _ = request
    assert LINE.fullmatch(line)
    assert FIELDS.fullmatch(fields)
