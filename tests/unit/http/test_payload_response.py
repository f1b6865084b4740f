"""Payloads over HTTP: whole and in part, as a file; and listeners that show sizes only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_worker import Worker, kind, token
from http_world import World

from dragoman.core.failure import Failure
from dragoman.core.owners import Owner
from dragoman.core.rights import NO_LIMITS, Rights
from dragoman.http.app import make_app
from dragoman.http.context import AppContext
from dragoman.http.payload_response import payload_response

SECRET = "the content of a job"


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def hide_payloads(world: World) -> None:
    world.listener.shows_payloads = False
    world._app = make_app(world.listener)


@pytest.mark.parametrize(
    ("wanted", "status", "body", "content_range"),
    [
        (None, 200, b"0123456789", None),
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=8-", 206, b"89", "bytes 8-9/10"),
        ("bytes=8-4095", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        (" bytes=0-0 ", 206, b"0", "bytes 0-0/10"),
        ("bytes=5-2", 200, b"0123456789", None),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("lines=0-3", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("bytes=" + "9" * 30 + "-", 200, b"0123456789", None),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
    ],
)
def test_a_range_of_a_payload(wanted: str | None, status: int, body: bytes | None, content_range: str | None) -> None:
    answer = payload_response("ab" * 16, bytearray(b"0123456789"), wanted)
    assert (answer.status_code, answer.headers.get("content-range")) == (status, content_range)
    if body is not None:
        assert answer.body == body
        assert answer.headers["content-disposition"] == f'attachment; filename="{"ab" * 16}.payload"'
        assert answer.headers["content-type"] == "application/octet-stream"


def test_the_header_of_the_request_chooses_the_range(world: World) -> None:
    id = world.enqueue(payload=SECRET)
    whole = world.ask("GET", f"/v1/jobs/{id}/payload")
    assert (whole.status_code, whole.text, whole.headers["accept-ranges"]) == (200, SECRET, "bytes")
    part = world.ask("GET", f"/v1/jobs/{id}/payload", headers={"Range": "bytes=4-10"})
    assert (part.status_code, part.text) == (206, "content")
    empty = world.enqueue(payload="")
    assert world.ask("GET", f"/v1/jobs/{empty}/payload").content == b""
    assert world.ask("GET", f"/v1/jobs/{empty}/payload", headers={"Range": "bytes=0-9"}).status_code == 416


def test_listener_without_payloads_shows_sizes_only(world: World) -> None:
    worker = Worker(world)
    id = world.enqueue(payload=SECRET)
    attempt = token(worker.takes())
    worker.says("progress", attempt, SECRET.encode())
    assert world.ask("GET", f"/v1/jobs/{id}").json()["payload"]["text"] == SECRET
    hide_payloads(world)
    hidden = world.ask("GET", f"/v1/jobs/{id}")
    assert SECRET not in hidden.text
    assert hidden.json()["size"] == len(SECRET)
    refused = world.ask("GET", f"/v1/jobs/{id}/payload")
    assert kind(refused) == (403, "payloads-hidden")
    assert "payloads=false" in refused.json()["detail"]
    worker.says("result", attempt, SECRET.encode())
    ended = world.ask("GET", f"/v1/jobs/{id}")
    assert SECRET not in ended.text
    assert ended.json()["result_size"] == len(SECRET)
    assert world.ask("GET", f"/v1/jobs/{id}/result").text == SECRET, "callers get their results"


def test_listener_without_payloads_shows_no_error_and_no_payload_by_key(world: World) -> None:
    """Messages and tracebacks of errors were shown, and `find` showed the payload."""
    worker = Worker(world)
    id = world.enqueue(payload=SECRET, key="k", attempts=1)
    worker.takes()
    hide_payloads(world)
    found = world.ask("GET", "/v1/jobs/find?service=s&key=k")
    assert (found.status_code, SECRET in found.text) == (200, False)
    world.fail(id, "E", Failure("E", SECRET, SECRET))
    shown = world.ask("GET", f"/v1/jobs/{id}")
    assert (shown.json()["outcome"], SECRET in shown.text) == ("failed", False)
    assert SECRET in world.ask("GET", f"/v1/jobs/{id}/result").text, "callers get their errors"


def test_listener_without_payloads_gives_results_to_the_owner_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator read the results of the jobs of others."""
    rights = {"web": Rights(call=("*",), work=("*",)), "ops": Rights(administer=("*",))}
    world.broker.principals.apply({name: (each, NO_LIMITS) for name, each in rights.items()})
    owners = {name: Owner(world.broker.principals.named(name), f"address of {name}") for name in rights}
    principal = "web"
    monkeypatch.setattr(AppContext, "owner", lambda self, scope: owners[principal])
    world.worker("s")
    id = world.enqueue(payload="x")
    world.succeed(id, SECRET.encode())
    batch = {"service": "s", "group": True, "jobs": [{"payload": "y"}]}
    view = world.ask("POST", "/v1/jobs/many", json=batch).json()
    world.succeed(view["jobs"][0], SECRET.encode())
    hide_payloads(world)
    paths = (f"/v1/jobs/{id}/result", f"/v1/groups/{view['group']}/results")
    assert [SECRET in world.ask("GET", each).text for each in paths] == [True, True]
    principal = "ops"
    assert [kind(world.ask("GET", each)) for each in paths] == [(403, "payloads-hidden")] * 2
