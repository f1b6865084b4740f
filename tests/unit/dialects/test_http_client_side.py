"""The client side of HTTP."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from itertools import count
from math import inf
from typing import Any

import pytest

from case_tables import check_every_row
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.http.peer import IDLE, ClientSide, check_services
from dragoman.dialects.sides import UNAUTHENTICATED, Failure, Outcome, SubmitOptions
from dragoman.sdk.http_requests import http_request_for

ID = bytes(16)


class Client:
    """A client side and its results."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.came: list[tuple[Any, ...]] = []
        self.hung_up: list[str] = []
        self.now = 100.0
        self.side = ClientSide(self, http_request_for)
        self.side.opened(self.now)
        assert self.side.is_ready

    def submit(self, submit_options: SubmitOptions | None = None, payload: bytes = b"job") -> list[bytes]:
        self.side.submit("mine", submit_options or SubmitOptions("echo"), payload, ID, self.now)
        return self.sent.pop()

    def ask(self, operation: str, payload: bytes = b"", **form: Any) -> list[bytes]:
        self.side.ask("mine", operation, json.dumps(form).encode(), payload, ID, self.now)
        return self.sent.pop()

    def receive(self, status: int, body: bytes = b"", kind: str = "application/octet-stream", more: bytes = b"") -> Any:
        """Deliver a response. Returns its only result."""
        self.side.receive([b"%d" % status, b"content-type:" + kind.encode() + more, body], self.now)
        return self.came.pop() if self.came else None

    def hear_problem(self, status: int, word: str, detail: str, **more: Any) -> Any:
        body = {"type": f"urn:dragoman:{word}", "detail": detail, **more}
        return self.receive(status, json.dumps(body).encode(), "application/problem+json")

    # ---------------------------------------------------------------- the port

    def send(self, frames: Sequence[Any]) -> None:
        self.sent.append([bytes(frame) for frame in frames])

    def answered(self, job_ref: Hashable, result: Any) -> None:
        self.came.append(("answered", bytes(result)))

    def ended(self, job_ref: Hashable, outcome: Any, reason: str, failure: Any = None, refusal: str = "") -> None:
        self.came.append((outcome, reason, failure, refusal))

    def abandoned(self, job_ref: Hashable, reason: str) -> None:
        raise AssertionError

    def reported(self, job_ref: Hashable, payload: Any, is_part: bool, attempt: int) -> None:
        raise AssertionError

    def told(self, job_ref: Hashable, view: bytes, payload: Any) -> None:
        self.came.append(("told", json.loads(view), bytes(payload)))

    def operation_failed(self, job_ref: Hashable, kind: str, detail: str) -> None:
        self.came.append((kind, detail))

    def reconnect(self, reason: str) -> None:
        self.hung_up.append(reason)


def test_a_connection_without_requests_is_closed_before_the_broker_does() -> None:
    client = Client()
    assert client.side.tick(client.now) == client.now + IDLE
    client.submit()
    assert client.side.tick(client.now + 1000) == inf
    client.receive(200)
    assert client.side.tick(client.now + IDLE) == inf
    assert client.hung_up == ["it is idle"]


def test_the_options_of_a_call_are_header_fields() -> None:
    def check(submit_options: SubmitOptions, expected: bytes) -> None:
        line, fields, body = Client().submit(submit_options, b"hello")
        assert (line, body) == (b"POST /v1/call/a%2Fb", b"hello")
        assert fields == b"content-type: application/octet-stream\r\n" + expected

    check_every_row(
        check,
        [
            (SubmitOptions("a/b"), b""),
            (SubmitOptions("a/b", timeout=2.5), b"dragoman-timeout: 2.5\r\n"),
            (
                SubmitOptions("a/b", timeout=inf, job_timeout=inf),
                b"dragoman-timeout: null\r\ndragoman-job-timeout: null\r\n",
            ),
            (
                SubmitOptions("a/b", timeout=86_401.0),
                b"dragoman-timeout: null\r\n",
            ),  # the client itself looks at the clock
            (
                SubmitOptions("a/b", priority=9, attempts=2, waits=True),
                b"dragoman-priority: 9\r\ndragoman-attempts: 2\r\ndragoman-wait-for-worker: true\r\n",
            ),
        ],
    )


def test_every_end_of_a_call_is_told_as_by_the_native_dialect() -> None:
    def check(status: int, word: str, detail: str, more: dict[str, Any], expected: tuple[Any, ...]) -> None:
        client = Client()
        client.submit()
        assert client.hear_problem(status, word, detail, **more) == expected

    error = {"type": "ValueError", "message": "no cat", "detail": "Traceback"}
    job = {"job": "0" * 32}
    failure = Failure("ValueError", "no cat", "Traceback")
    check_every_row(
        check,
        [
            (502, "failed", "why", {**job, "error": error}, (Outcome.FAILED, "why", failure, "")),
            (502, "lost", "why", job, (Outcome.LOST, "why", None, "")),
            (504, "timed-out", "why", job, (Outcome.TIMED_OUT, "why", None, "")),
            (409, "cancelled", "why", job, (Outcome.CANCELLED, "why", None, "")),
            (404, "no-such-service", "why", {}, (Outcome.REFUSED, "why", None, "no such service")),
            (429, "busy", "why", {}, (Outcome.REFUSED, "why", None, "busy")),
            (503, "draining", "why", {}, (Outcome.REFUSED, "why", None, "draining")),
            (
                413,
                "too-large",
                "max_payload is 2 bytes.",
                {},
                (Outcome.REFUSED, "a payload of 3 bytes is over the broker's max_payload 2", None, "too large"),
            ),
        ],
    )


def test_a_result_is_the_body() -> None:
    client = Client()
    client.submit()
    assert client.receive(200, b"result") == ("answered", b"result")
    client.submit()
    assert client.receive(200, b"") == ("answered", b"")


def test_a_connection_that_the_broker_closes_is_left() -> None:
    client = Client()
    client.submit()
    assert client.receive(200, b"result", more=b"\nconnection:close") == ("answered", b"result")
    assert client.hung_up == ["the broker closes this connection"]


def test_whoever_cancels_hangs_up() -> None:
    client = Client()
    client.submit()
    client.side.cancel(ID, client.now)
    assert client.came == [(Outcome.CANCELLED, "its caller cancelled it", None, "")]
    assert client.hung_up == ["a call was cancelled"]


def test_answers_that_no_broker_gives_are_malformed() -> None:
    def check(status: int, body: bytes, kind: str) -> None:
        client = Client()
        client.submit()
        with pytest.raises(Malformed):
            client.receive(status, body, kind)

    problem = "application/problem+json"
    rows = [(502, b"<html>", "text/html"), (502, b"{", problem), (502, b"[]", problem), (404, b'{"title": 1}', problem)]
    check_every_row(check, rows)


def test_an_operation_goes_on_with_the_next_connection_and_a_call_does_not() -> None:
    client = Client()
    client.submit()
    assert not client.side.outlives_connections
    client.receive(200)
    request = client.ask("why", id="0" * 32)
    assert client.side.outlives_connections
    client.side.lost()
    client.side.opened(client.now)
    assert client.sent == [request]
    assert client.receive(200, b'{"why": "It is done."}', "application/json") == ("told", {"why": "It is done."}, b"")
    assert not client.side.outlives_connections


def test_each_copy_of_a_numbered_request_has_an_id_of_its_own() -> None:
    """R235: a repetition says how long ago the first copy was sent."""
    client = Client()
    for operation, form, line in (
        ("enqueue", b'{"service": "s"}', b"POST /v1/jobs?service=s&request_id=copy-%d"),
        ("delete schedule", b'{"name": "n"}', b"DELETE /v1/schedules/n?request_id=copy-%d"),
    ):
        client.side.ask("mine", operation, form, b"", ID, client.now, None, map("copy-{}".format, count(1)).__next__)
        client.side.lost()
        client.side.opened(client.now)
        client.receive(200, b"{}", "application/json")
        assert [request[0].split(b" HTTP")[0] for request in client.sent] == [line % 1, line % 2]
        client.sent.clear()
    request = client.ask("why", id="0" * 32)
    client.side.lost()
    client.side.opened(client.now)
    assert client.sent == [request], "the next request is not numbered"


def test_the_outcome_of_a_background_job_is_read_from_the_response() -> None:
    client = Client()
    client.ask("result", id="0" * 32, wait=30.0)
    assert client.receive(200, b"\xff") == ("told", {"state": "ended", "outcome": "done", "reason": ""}, b"\xff")
    client.ask("result", id="0" * 32)
    running = {"state": "running", "outcome": None}
    assert client.receive(202, json.dumps(running).encode(), "application/json") == ("told", running, b"")
    client.ask("result", id="0" * 32)
    error = {"type": "ValueError", "message": "no cat", "detail": "here"}
    assert client.hear_problem(502, "failed", "why", job="0" * 32, error=error) == (
        "told",
        {"state": "ended", "outcome": "failed", "reason": "why"},
        b"ValueError\0no cat\0here",
    )


def test_problems_of_operations_are_told_as_by_the_native_dialect() -> None:
    def check(word: str, detail: str, kind: str, told: str) -> None:
        client = Client()
        client.ask("enqueue", b"abc", service="echo")
        assert client.hear_problem(422, word, detail) == (kind, told)

    check_every_row(
        check,
        [
            ("not-found", "there is no such job", "not found", "there is no such job"),
            ("key-reused", "another payload", "key reused", "another payload"),
            ("invalid", "in the query: priority: must be at most 9", "invalid", "enqueue: priority: must be at most 9"),
            ("invalid", "in the body: cron: no", "invalid", "enqueue: cron: no"),
            ("invalid", "id, in the path: no id", "invalid", "enqueue: id: no id"),
            ("invalid", "say one of them", "invalid", "say one of them"),
            (
                "too-large",
                "max_payload is 2 bytes.",
                "too large",
                "an operation of 3 bytes is over the broker's max_payload 2",
            ),
        ],
    )


def test_a_name_that_no_path_can_have_is_not_asked_for() -> None:
    client = Client()
    client.side.ask("mine", "resume", b'{"name": ""}', b"", ID, client.now)
    assert (client.sent, client.came) == ([], [("invalid", "resume: name: must not be empty")])


@pytest.mark.parametrize("name", ["", "a" * 129, "tab\tin it", "half \ud800"])
def test_names_that_no_service_has(name: str) -> None:
    assert "is not a service name" in str(check_services([name]))
    assert check_services(["resize", "a/b", "größe"]) is None


def test_response_401_is_about_the_sender_even_without_a_problem_document() -> None:
    """A proxy in front of the broker may require a token, too. Its response was taken for that of a strange server."""
    for body, kind in ((b"<html>", "text/html"), (b'{"type":"urn:dragoman:x"}', "application/problem+json")):
        client = Client()
        client.submit()
        assert client.receive(401, body, kind) == (Outcome.REFUSED, "HTTP 401", None, UNAUTHENTICATED)
        client.ask("services")
        assert client.receive(401, body, kind)[-2:] == (UNAUTHENTICATED, "HTTP 401")
