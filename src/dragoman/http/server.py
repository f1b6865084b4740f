"""The HTTP server: listening sockets and graceful shutdown (R128). Serves any ASGI app."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.http.all_bodies import AllBodies
from dragoman.http.hosts import Hosts
from dragoman.http.limits import HttpLimits
from dragoman.http.protocol import LimitedProtocol
from dragoman.http.server_state import NO_CHECK, ConnectionCheck, HttpServerState, Report, TooLarge
from dragoman.http.tls_acceptor import Context, HandshakeLimits, TlsAcceptor, TlsReport
from dragoman.http.transports import Traffic

if TYPE_CHECKING:
    from starlette.types import ASGIApp

BACKLOG = 1024
CANCEL_WAIT = 1.0  # seconds that an app may take to end once it is cancelled


def _ignore(_: object) -> None: ...


class HttpServer:
    """`report(reason, address, detail)` is called for every rejected request.

    `failed(error)` is called for every exception of the app.

    `end_streams` is called when the server begins to close: open event streams would delay it until the timeout.
    `too_large(scope)` is called for requests whose body is too large, which the app does not get.
    `health_paths` are served even when there are too many connections.
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
        check: ConnectionCheck = NO_CHECK,
        hsts: int = 0,
        all_bodies: AllBodies | None = None,
    ) -> None:
        self._loop = loop
        self._hosts = Hosts(allowed_hosts)
        self._watch = HttpServerState(
            loop, limits, self._hosts, report, failed, too_large, health_paths, check, hsts, all_bodies
        )
        self._end_streams = end_streams
        # Loggers are not configured, because they belong to the process. Proxy headers are not trusted.
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
        self._acceptors: list[TlsAcceptor] = []

    @property
    def connections(self) -> int:
        return len(self._watch)

    @property
    def traffic(self) -> Traffic:
        return self._watch.traffic

    def end_revoked(self) -> int:
        """Abort connections and running requests of principals that have lost their access. Returns their number."""
        return self._watch.end_revoked()

    def listen(self, sock: socket.socket) -> None:
        """Serve connections of this listening socket, and take ownership of it."""
        opening: Coroutine[Any, Any, asyncio.AbstractServer]
        if sock.family == socket.AF_UNIX:
            opening = self._loop.create_unix_server(self.new_protocol, sock=sock, backlog=BACKLOG)
        else:
            self._hosts.allow(sock.getsockname()[0])
            opening = self._loop.create_server(self.new_protocol, sock=sock, backlog=BACKLOG)
        self._openings.append(self._loop.create_task(opening))

    def listen_tls(self, sock: socket.socket, context: Context, failed: TlsReport, limits: HandshakeLimits) -> None:
        """Serve connections with TLS, each with the context that `context` returns. `limits`: of all listeners."""
        self._hosts.allow(sock.getsockname()[0])
        self._hosts.is_tls = True
        self._acceptors.append(TlsAcceptor(self._loop, sock, self.new_protocol, context, failed, limits))

    def new_protocol(self) -> LimitedProtocol:
        """Return the protocol of a new connection."""
        return LimitedProtocol(self._config, self._watch)

    async def close_gently(self, timeout: float) -> None:
        """Accept no more connections, close idle ones, and let running requests end. After `timeout` seconds, abort."""
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
        if waiting := [*self._openings, *tasks]:
            await asyncio.wait(waiting, timeout=CANCEL_WAIT)

    def abort(self) -> None:
        """Close everything now. Running requests of the app are cancelled."""
        self._stop_listening()
        for connection in self._watch.connections():
            connection.abort()
        for task in list(self._watch.shared.tasks):
            task.cancel()
        self._watch.stop()

    def _stop_listening(self) -> None:
        self._watch.is_closing = True
        for acceptor in self._acceptors:
            acceptor.close()
        for opening in self._openings:
            if opening.done():
                _close(opening)
            else:
                opening.add_done_callback(_close)


def _close(opening: asyncio.Task[asyncio.AbstractServer]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
