"""Connections and running requests of principals that have lost their access (R163)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.core.rights import Principal
from dragoman.http.admission import ADMITTED, CONNECTED, Admission
from dragoman.http.server import HttpServer
from dragoman.http.server_state import RECHECK, ConnectionCheck
from hostile_http import LIMITS, echo, get
from http_visits import Visit, World

ADDRESS = ("127.0.0.1", 50_000)


class Access:
    """Connections of `owner`, and requests of the principals that their targets name."""

    def __init__(self) -> None:
        self.world = World()
        self.revoked: set[str] = set()
        self.left: list[str] = []
        self.seen: list[str | None] = []
        check = ConnectionCheck(lambda socket, certificate: self._admission("owner"))
        self.world.server = HttpServer(self.world.loop, self._app, LIMITS, [], self._report, check=check)

    def _admission(self, name: str) -> Admission:
        return Admission(Principal(name), is_current=lambda: name not in self.revoked)

    def _report(self, reason: str, address: str, detail: str) -> None:
        self.world.reports.append((reason, address))

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        connected = scope["extensions"][CONNECTED]
        self.seen.append(connected.principal.name if connected is not None else None)
        name = scope["path"].removeprefix("/")
        scope["extensions"][ADMITTED] = self._admission(name)
        if name == "quick":
            await echo(scope, receive, send)
            return
        scope["extensions"]["dragoman.hangup"].call = lambda: self.left.append(name)
        await asyncio.Event().wait()

    def visit(self, name: str) -> Visit:
        visit = Visit(self.world, ADDRESS)
        visit.say(get(line=f"GET /{name} HTTP/1.1".encode()))
        return visit


@pytest.fixture
def access() -> Iterator[Access]:
    access = Access()
    yield access
    access.world.close()


def test_running_request_of_a_revoked_principal_is_aborted(access: Access) -> None:
    web, ops, quick = access.visit("web"), access.visit("ops"), access.visit("quick")
    assert access.world.server.end_revoked() == 0
    access.revoked |= {"web", "quick"}
    assert access.world.server.end_revoked() == 1, "a request that has its response is over"
    access.world.run_once()
    assert [each.transport.is_aborted for each in (web, ops, quick)] == [True, False, False]
    assert access.left == ["web"], "its handler learns of it"
    assert access.world.reasons == ["revoked"]


def test_connections_of_a_revoked_principal_are_aborted(access: Access) -> None:
    visits = [access.visit("web"), access.visit("quick"), Visit(access.world, ADDRESS)]
    access.revoked.add("owner")
    assert access.world.server.end_revoked() == 3
    assert all(each.transport.is_aborted for each in visits)
    assert access.seen == ["owner", "owner"]


def test_running_requests_are_checked_again_from_time_to_time(access: Access) -> None:
    """Nobody reports the end of a login session that expires."""
    web = access.visit("web")
    access.revoked.add("web")
    state = access.world.server._watch
    access.world.pass_time(RECHECK - 1)
    state._sweep()
    assert not web.transport.is_aborted
    access.world.pass_time(1)
    state._sweep()
    assert web.transport.is_aborted
