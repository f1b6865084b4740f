"""The HTTP server: listening sockets, and connections that end when they are told to (R128). Serves any ASGI app."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.http.hosts import Hosts
from dragoman.http.limits import HttpLimits
from dragoman.http.protocol import LimitedProtocol
from dragoman.http.server_state import HttpServerState, Report, TooLarge
from dragoman.http.transports import Traffic

if TYPE_CHECKING:
    from starlette.types import ASGIApp

BACKLOG = 1024
LAST_WORDS = 1.0  # how long an app may take to end once it is cancelled


def _ignore(_: object) -> None: ...


class HttpServer:
    """`report(reason, address)` hears of every refusal, `failed(error)` of every exception out of the app.

    `end_streams` is called when the server begins to close: open event streams would else hold it up to the timeout.
    `too_large(scope)` hears of requests whose body is too large for the app to see them.
    `health_paths` are answered even when there are too many connections.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        app: ASGIApp,
        limits: HttpLimits,
        allowed_hosts: Iterable[str],
        report: Report,
        failed: Callable[[BaseException], None] = _ignore,
        end_streams: Callable[[], None] | None = None,
        too_large: TooLarge = _ignore,
        health_paths: Iterable[str] = (),
    ) -> None:
        self._loop = loop
        self._hosts = Hosts(allowed_hosts)
        self._watch = HttpServerState(loop, limits, self._hosts, report, failed, too_large, health_paths)
        self._end_streams = end_streams
        # Loggers are left as they are, for they belong to the process; and nobody before us is believed to be a proxy.
        self._config = Config(
            app,
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
            server_header=False,
        )
        self._config.load()
        self._openings: list[asyncio.Task[asyncio.AbstractServer]] = []

    @property
    def connections(self) -> int:
        return len(self._watch)

    @property
    def traffic(self) -> Traffic:
        return self._watch.traffic

    def listen(self, sock: socket.socket) -> None:
        """Serve whoever comes to this socket, which listens already and is ours from now on."""
        opening: Coroutine[Any, Any, asyncio.AbstractServer]
        if sock.family == socket.AF_UNIX:
            opening = self._loop.create_unix_server(self.meet, sock=sock, backlog=BACKLOG)
        else:
            self._hosts.allow(sock.getsockname()[0])
            opening = self._loop.create_server(self.meet, sock=sock, backlog=BACKLOG)
        self._openings.append(self._loop.create_task(opening))

    def meet(self) -> LimitedProtocol:
        """Somebody has come: who talks to them."""
        return LimitedProtocol(self._config, self._watch)

    async def close_gently(self, timeout: float) -> None:
        """Take no more connections, close the idle ones, let running requests end; what remains then is aborted."""
        self._stop_listening()
        for connection in self._watch.connections():
            connection.shutdown()
        if self._end_streams is not None:
            self._end_streams()
        try:
            async with asyncio.timeout(timeout):
                await self._watch.empty()
        except TimeoutError:
            pass
        tasks = list(self._watch.shared.tasks)
        self.abort()
        await self._watch.empty()
        await asyncio.wait([*self._openings, *tasks], timeout=LAST_WORDS)

    def abort(self) -> None:
        """End everything now. What the app was at is cancelled."""
        self._stop_listening()
        for connection in self._watch.connections():
            connection.abort()
        for task in list(self._watch.shared.tasks):
            task.cancel()
        self._watch.stop()

    def _stop_listening(self) -> None:
        self._watch.is_closing = True
        for opening in self._openings:
            if opening.done():
                _close(opening)
            else:
                opening.add_done_callback(_close)


def _close(opening: asyncio.Task[asyncio.AbstractServer]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
