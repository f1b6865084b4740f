"""Visits to NATS servers in tests: connections of Dragoman's own side of NATS, on both event loops."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from dragoman.carriers.carrier import Frame
from dragoman.carriers.nats_connect import NO_CREDENTIALS, ConnectOptions, Credentials
from dragoman.carriers.nats_info import ServerInfo
from dragoman.carriers.nats_lines import NatsLimits
from dragoman.cluster.nats_address import parse_nats
from dragoman.cluster.nats_client import NatsWatcher
from dragoman.server.event_loop import loop_factory
from dragoman.server.nats_connection import NatsConnection, open_nats
from programs import PATIENCE

_numbers = itertools.count(1)


def run(work: Callable[[], Coroutine[Any, Any, None]], loop_name: str = "asyncio") -> None:
    """Run a coroutine on a new loop. It fails if it takes longer than the patience of tests allows, several times."""

    async def bounded() -> None:
        async with asyncio.timeout(4 * PATIENCE):
            await work()

    with asyncio.Runner(loop_factory=loop_factory(loop_name)) as runner:
        runner.run(bounded())


class Notes(NatsWatcher):
    """Collects the news of a connection."""

    def __init__(self) -> None:
        self.infos: list[ServerInfo] = []
        self.errors: asyncio.Queue[str] = asyncio.Queue()
        self.informed_again = asyncio.Event()

    def informed(self, info: ServerInfo, now: float) -> None:
        self.infos.append(info)
        self.informed_again.set()

    def error(self, text: str, now: float) -> None:
        self.errors.put_nowait(text)


Received = tuple[bytes, bytes, bytes, bytes]  # subject, reply, headers, payload


class Inbox:
    """Collects the messages of a subscription."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Received] = asyncio.Queue()

    def __call__(self, subject: Frame, reply: Frame, headers: Frame, payload: Frame, now: float) -> None:
        self.queue.put_nowait((bytes(subject), bytes(reply), bytes(headers), bytes(payload)))

    async def next(self) -> Received:
        async with asyncio.timeout(PATIENCE):
            return await self.queue.get()


@asynccontextmanager
async def visit(
    url: str,
    credentials: Credentials = NO_CREDENTIALS,
    *,
    watcher: NatsWatcher | None = None,
    echoes: bool = False,
    limits: NatsLimits | None = None,
    timeout: float = PATIENCE,
) -> AsyncIterator[NatsConnection]:
    """Connect to a server, and close the connection at the end."""
    options = ConnectOptions("test", "1", echoes, credentials)
    inbox = b"test.r.%d" % next(_numbers)
    connection = await open_nats(parse_nats(url), options, inbox, timeout, watcher, limits or NatsLimits())
    try:
        yield connection
    finally:
        connection.close()
