"""Readers of the event streams of brokers in a cluster: the real HTTP application, without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from cluster_world import Node, World

from dragoman.http.admission import CONNECTED, Admission
from dragoman.http.app import make_app
from dragoman.http.broker_side import HttpBrokerSide
from dragoman.http.context import AppContext
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.options import ListenerOptions
from unit.operations.world import READY

MAX_PAYLOAD = 4096


class Readers:
    """The event loop of all readers in a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = asyncio.new_event_loop()

    def open(self, node: Node, path: str = "/v1/events", query: str = "", principal: str = "local") -> Reader:
        return Reader(self, node, path, query, principal)

    def run(self, seconds: float = 0.2) -> None:
        """Let time pass, and the streams be read."""
        until = self.world.now + seconds
        while self.world.now < until:
            self.world.run(0.05)
            self.settle()

    def settle(self) -> None:
        async def rest() -> None:
            for _ in range(30):
                await asyncio.sleep(0)

        self.loop.run_until_complete(rest())

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.settle()
        self.loop.close()


class Reader:
    """A request to one broker, read as it comes."""

    def __init__(
        self,
        readers: Readers,
        node: Node,
        path: str,
        query: str,
        principal: str,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self._readers = readers
        self.received = b""
        self.status = 0
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.disconnect = DisconnectSignal()
        session = HttpBrokerSide(node.broker, node.runner.connections, ListenerOptions())
        node.runner.sessions.append(session)
        self.context = AppContext(
            node.broker,
            node.operations,
            session,
            node.runner,
            lambda: readers.world.now,
            lambda: READY,
            MAX_PAYLOAD,
        )
        scope: Any = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": list(headers),
            "client": ("10.0.0.1", 1),
            "extensions": {
                HANGUP: self.disconnect,
                CONNECTED: Admission(node.broker.principals.named(principal)),
            },
        }
        self.task = readers.loop.create_task(make_app(self.context)(scope, self._receive, self._send))
        readers.settle()
        readers.run()

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the events since the last call."""
        self._readers.settle()
        received, self.received = self.received, b""
        found = []
        for block in received.decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found

    def outline(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the name of each event since the last call, with the values of these fields."""
        return [(event, *(fields.get(name) for name in names)) for event, fields in self.events()]

    def leave(self) -> None:
        if self.disconnect.call is not None:
            self.disconnect.call()
        self._readers.run()

    def stop_reading(self) -> None:
        self._may_read.clear()

    def read_on(self) -> None:
        self._may_read.set()
        self._readers.settle()

    async def _receive(self) -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        await self._may_read.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.received += message.get("body", b"")
