"""Connections of users that may not connect, and requests that a proxy has forwarded (T22)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dragoman.http.framing import RequestError
from dragoman.http.limited_connection import RESERVE_TIMEOUT
from dragoman.http.server import HttpServer
from dragoman.http.server_state import ConnectionCheck
from hostile_http import LIMITS, echo
from http_visits import Visit, World

ADDRESS = ("127.0.0.1", 50_000)
FAULT = RequestError(403, "another-user", "Another user", "uid 7 may not connect")
PUBLIC = frozenset((b"/livez", b"/readyz"))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def serve(world: World, check: ConnectionCheck, **limits: Any) -> None:
    def report(*each: str) -> None:
        world.reports.append(each)  # type: ignore[arg-type]

    paths = ("/livez", "/readyz", "/v1/health")
    world.server = HttpServer(world.loop, echo, replace(LIMITS, **limits), [], report, health_paths=paths, check=check)


def get(path: str, *fields: str, method: str = "GET") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", "")).encode()


def visit(world: World, data: bytes) -> Visit:
    visit = Visit(world, ADDRESS)
    visit.say(data)
    return visit


def test_another_user_gets_health_checks_only(world: World) -> None:
    serve(world, ConnectionCheck(lambda *_: FAULT, PUBLIC))
    statuses = {}
    for data in (get("/livez"), get("/readyz?x=1"), get("/livez", method="HEAD"), get("/v1/health"), get("/")):
        [statuses[data.split(b" HTTP")[0]]] = visit(world, data).statuses
    assert statuses == {
        b"GET /livez": 200,
        b"GET /readyz?x=1": 200,
        b"HEAD /livez": 200,
        b"GET /v1/health": 403,
        b"GET /": 403,
    }
    assert world.reports == [("another-user", "127.0.0.1:50000", "uid 7 may not connect")] * 2


def test_the_response_has_the_reason_and_ends_the_connection(world: World) -> None:
    serve(world, ConnectionCheck(lambda *_: FAULT, PUBLIC))
    rejected = visit(world, get("/"))
    assert json.loads(rejected.body)["detail"] == "uid 7 may not connect"
    assert rejected.transport.is_finished
    rejected.say(get("/livez"))
    assert rejected.statuses == [403]


def test_the_reason_follows_a_health_check_on_the_same_connection(world: World) -> None:
    """A bug: Dragoman's own clients begin with /livez, and the connection was closed after it, without the reason."""
    serve(world, ConnectionCheck(lambda *_: FAULT, PUBLIC))
    probing = visit(world, get("/livez"))
    assert not probing.transport.is_finished
    probing.say(get("/"))
    assert probing.statuses == [200, 403]
    assert probing.transport.is_finished


def test_a_rejected_connection_is_not_kept_after_a_health_check(world: World) -> None:
    serve(world, ConnectionCheck(lambda *_: FAULT, PUBLIC))
    probing = visit(world, get("/livez"))
    probing.protocol.look(world.loop.time() + RESERVE_TIMEOUT, 0.5)
    assert probing.statuses == [200], "nobody has asked for more"
    assert probing.transport.is_closing()


def test_connections_of_another_user_take_no_place_of_others(world: World) -> None:
    strangers = [FAULT] * 3
    serve(world, ConnectionCheck(lambda *_: strangers.pop() if strangers else None, PUBLIC), max_connections=1)
    for _ in range(3):
        Visit(world, ADDRESS)
    assert visit(world, get("/v1/health")).statuses == [200]
    assert visit(world, get("/")).statuses == [503]


def test_a_connection_that_has_ended_is_closed(world: World) -> None:
    def gone(*_: object) -> None:
        raise ConnectionAbortedError

    serve(world, ConnectionCheck(gone, PUBLIC))
    assert Visit(world, ADDRESS).transport.is_aborted
    world.run_once()
    assert (world.server.connections, world.reports) == (0, [])


FIELDS = ("Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.1", "x-FORWARDED-proto: https", "X-Forwarded-: ")


@pytest.mark.parametrize("field", FIELDS)
def test_a_forwarded_request_is_rejected_where_users_are_checked(world: World, field: str) -> None:
    serve(world, ConnectionCheck(public_paths=PUBLIC, rejects_forwarded=True))
    rejected = visit(world, get("/v1/health", field))
    assert rejected.statuses == [403]
    assert "A proxy is in front: write auth=token" in json.loads(rejected.body)["detail"]
    assert visit(world, get("/livez", field)).statuses == [200]
    assert visit(world, get("/v1/health", "X-Forwarding: no", "Forward: 1")).statuses == [200]


def test_a_forwarded_request_is_served_where_users_are_not_checked(world: World) -> None:
    serve(world, ConnectionCheck())
    assert visit(world, get("/v1/health", *FIELDS[:2])).statuses == [200]
