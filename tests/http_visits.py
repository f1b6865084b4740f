"""HTTP connections without sockets: a server, and clients that send bytes to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from dragoman.http.all_bodies import AllBodies
from dragoman.http.limits import HttpLimits
from dragoman.http.server import HttpServer
from fuzz.fake_transport import FakeTransport
from hostile_http import LIMITS, echo


class Visit:
    """A connection with its two ends."""

    def __init__(self, world: World, address: tuple[str, int]) -> None:
        self.world = world
        self.transport = FakeTransport(world.loop, address)
        self.protocol = world.server.new_protocol()
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)
        self.came = world.loop.time()

    def say(self, data: bytes, size: int = 0) -> None:
        """Send bytes, whole or in pieces of a size."""
        for at in range(0, len(data), size or len(data) or 1):
            if not self.transport.is_closed and not self.transport.is_finished:
                self.protocol.data_received(data[at : at + (size or len(data))])
                if at % 16 == 0 or at > len(data) - 16:
                    self.world.run_once()
        self.world.run_once()

    def look(self, after: float, passed: float = 0.5) -> None:
        """Run the timer's check, this many seconds after the connection was opened."""
        self.protocol.look(self.came + after, passed)
        self.world.run_once()

    @property
    def statuses(self) -> list[int]:
        return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+) ", self.transport.written)]

    @property
    def body(self) -> bytes:
        """Return the body of the last response."""
        return self.transport.written.rpartition(b"\r\n\r\n")[2]


class World:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.reports: list[tuple[str, str]] = []
        self.errors: list[BaseException] = []
        self.hangups = 0
        self.too_large: list[dict[str, Any]] = []
        self.server = HttpServer(
            self.loop, echo, LIMITS, [], lambda reason, address, _: self.reports.append((reason, address))
        )

    def serve(
        self,
        app: Any = echo,
        limits: HttpLimits = LIMITS,
        health_paths: Sequence[str] = (),
        all_bodies: AllBodies | None = None,
    ) -> None:
        self.server = HttpServer(
            self.loop,
            app,
            limits,
            [],
            lambda reason, address, _: self.reports.append((reason, address)),
            self.errors.append,
            too_large=self.too_large.append,
            health_paths=health_paths,
            all_bodies=all_bodies,
        )

    def visit(self, address: tuple[str, int] = ("127.0.0.1", 5)) -> Visit:
        return Visit(self, address)

    def run_once(self) -> None:
        """Run the loop until nothing changes."""
        for _ in range(8):
            self.loop.run_until_complete(asyncio.sleep(0))

    def pass_time(self, seconds: float) -> None:
        """Advance the loop's clock only."""
        then = self.loop.time() + seconds
        self.loop.time = lambda: then  # type: ignore[method-assign]

    def close(self) -> None:
        self.server.abort()
        self.run_once()
        self.loop.close()

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.reports]
