"""Bodies that are too large: the server's response, and the job of such a result (R16)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from http_worker import Worker, call, kind, only_job, token
from http_world import MAX_PAYLOAD, World

import http_visits
from dragoman.core.states import JobState, WorkerState
from dragoman.http.admission import CONNECTED
from dragoman.http.app import make_too_large
from hostile_http import CHUNKED, get, post


@pytest.fixture
def visits() -> Iterator[http_visits.World]:
    visits = http_visits.World()
    visits.serve()
    yield visits
    visits.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


# ---------------------------------------------------------------- what the server tells


@pytest.mark.parametrize("target", [b"/v1/a%2Fb?c=d", b"http://localhost/v1/a%2Fb?c=d"], ids=["path", "url"])
@pytest.mark.parametrize("size", [0, 1], ids=["whole", "bytewise"])
def test_a_length_over_the_limit_is_told_with_what_it_is_about(
    visits: http_visits.World, target: bytes, size: int
) -> None:
    visit = visits.visit()
    visit.say(get(b"X-Y: z", b"Content-Length: 1001", line=b"POST " + target + b" HTTP/1.1"), size)
    (scope,) = visits.too_large
    assert (scope["method"], scope["raw_path"], scope["query_string"]) == ("POST", b"/v1/a%2Fb", b"c=d")
    assert scope["headers"] == [(b"host", b"localhost"), (b"x-y", b"z"), (b"content-length", b"1001")]
    assert visit.statuses == [413]


def test_chunks_that_grow_over_the_limit_are_told(visits: http_visits.World) -> None:
    visit = visits.visit()
    visit.say(CHUNKED + b"3e8\r\n")
    assert visits.too_large == []
    visit.say(b"a" * 1000 + b"\r\n1\r\n")
    (scope,) = visits.too_large
    assert (scope["method"], scope["raw_path"], visit.statuses) == ("POST", b"/", [413])


def test_other_refusals_are_not_told(visits: http_visits.World) -> None:
    visit = visits.visit()
    visit.say(post(b"Content-Length: 5", b"Content-Encoding: gzip") + b"hallo")
    assert (visit.statuses, visits.too_large) == ([415], [])


# ---------------------------------------------------------------- what the operations do about it


def receive(world: World, path: str, headers: dict[str, str], method: str = "POST") -> None:
    """Report a request that the server has rejected."""
    fields = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "method": method, "raw_path": path.encode(), "headers": fields}
    scope["extensions"] = {CONNECTED: world.admission}
    make_too_large(world.listener)({**scope, "query_string": b""})
    world.settle()


def test_a_result_that_never_came_in_fails_its_job(world: World) -> None:
    """The job ran on, and was given to its worker again and again until its time was over."""
    worker = Worker(world)
    waiting = call(world)
    attempt = token(worker.takes())
    receive(world, f"{worker.path}/result", {**worker.headers, "Dragoman-Attempt": attempt, "Content-Length": "70000"})
    answer = world.finish(waiting)
    assert kind(answer) == (502, "failed")
    assert answer.json()["detail"] == f"its answer of 70000 bytes is over max_payload {MAX_PAYLOAD}"
    assert worker.core.state is WorkerState.DETACHED
    poll = worker.asks()
    assert not poll.done()


def test_a_result_in_chunks_fails_its_job_without_a_number(world: World) -> None:
    worker = Worker(world)
    waiting = call(world)
    attempt = token(worker.takes())
    receive(world, f"{worker.path}/result", {**worker.headers, "Dragoman-Attempt": attempt})
    assert world.finish(waiting).json()["detail"] == f"its answer is over max_payload {MAX_PAYLOAD}"


@pytest.mark.parametrize("wrong", ["worker", "secret", "attempt", "no attempt", "method", "operation"])
def test_nothing_else_ends_a_job(world: World, wrong: str) -> None:
    worker = Worker(world)
    call(world)
    attempt = token(worker.takes())
    headers = {**worker.headers, "Dragoman-Attempt": attempt, "Content-Length": "70000"}
    path, method = f"{worker.path}/result", "POST"
    if wrong == "worker":
        path = "/v1/workers/4711/result"
    elif wrong == "secret":
        headers["Dragoman-Worker-Token"] = "0" * 32
    elif wrong == "attempt":
        headers["Dragoman-Attempt"] = "0" * 32
    elif wrong == "no attempt":
        del headers["Dragoman-Attempt"]
    elif wrong == "method":
        method = "PUT"
    else:
        path = f"{worker.path}/progress"
    receive(world, path, headers, method)
    assert only_job(world).state is JobState.RUNNING
    assert worker.says("result", attempt, b"y").status_code == 204
