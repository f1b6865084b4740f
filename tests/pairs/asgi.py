"""Requests to the HTTP application without sockets, on an event loop that is run step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dragoman.http.admission import CONNECTED, Admission
from dragoman.http.app import make_app
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.context import AppContext
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.options import ListenerOptions
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.schemas import HealthView
from dragoman.store.null import NullStore
from pairs.world import World

_listeners: dict[World, Any] = {}  # the application of each world
_loop: asyncio.AbstractEventLoop | None = None


class Exchange:
    """One request, and the part of its response that has arrived."""

    def __init__(
        self, world: World, method: str, path: str, body: bytes, headers: dict[str, str], options: ListenerOptions
    ) -> None:
        self._world = world
        self._body = body
        self.status = 0
        self.headers: dict[str, str] = {}
        self.content = b""
        self.is_over = False
        self.hangup = DisconnectSignal()
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "extensions": {HANGUP: self.hangup, CONNECTED: Admission(world.broker.principals.local)},
        }
        _the_loop().create_task(_app(world, options)(scope, self._receive, self._send))
        settle(world)

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.content += message.get("body", b"")
            self.is_over = not message.get("more_body", False)


def settle(world: World) -> None:
    """Run the loop until nothing moves."""
    loop = _the_loop()
    for _ in range(4):
        world.runner.run_once()
        loop.call_soon(loop.stop)
        loop.run_forever()


@contextmanager
def one_world(*, strict: bool = True) -> Iterator[World]:
    """A world for one row of a table: its waiting requests end before the next row begins."""
    try:
        yield World(strict=strict)
    finally:
        end_all()


def end_all() -> None:
    """End all waiting requests."""
    global _loop
    loop, _loop = _loop, None
    _listeners.clear()
    if loop is not None:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        for _ in range(4):
            loop.call_soon(loop.stop)
            loop.run_forever()
        loop.close()


def _the_loop() -> asyncio.AbstractEventLoop:
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
    return _loop


def _app(world: World, options: ListenerOptions) -> Any:
    if world not in _listeners:
        session = HttpBrokerSide(world.broker, world.runner.connections, options)
        operations = OperationHandlers(world.broker, world.runner.store_access, NullStore(), lambda: 0.0, _no_health)
        world.runner.sessions += [session, operations]
        _listeners[world] = make_app(
            AppContext(world.broker, operations, session, world.runner, lambda: world.now, _no_health, 200_000)
        )
    return _listeners[world]


def _no_health() -> HealthView:
    raise NotImplementedError("nobody asks for it here")
