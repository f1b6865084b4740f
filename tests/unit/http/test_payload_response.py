"""Payloads over HTTP: whole and in part, as a file; and listeners that show sizes only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_worker import Worker, kind, token
from http_world import World

from dragoman.http.app import make_app
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
