"""Accepts HTTP connections with TLS, each with the context of the moment.

asyncio's own server has one context for its whole life. A server that is closed and replaced by another one on the same
socket loses connections that are accepted meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from dragoman.streams.tls_problems import ALERT_OF_WRONG_PROTOCOL

HANDSHAKE_TIMEOUT = 10.0  # seconds
SHUTDOWN_TIMEOUT = 1.0  # seconds to wait for the client's close_notify
ACCEPTS_PER_ITERATION = 64
ALERT: Final = "dragoman_alert"  # attribute of an error: the bytes that OpenSSL has for the client
LINGER: Final = 1.0  # seconds in which a client may read the alert: input that is not read would reset the connection
MOST_READ: Final = 1 << 16  # bytes of that input
TLS = "tls"  # mechanism of the handshakes, in metrics
PAUSE = 1.0  # seconds without accepting, after it failed for lack of file descriptors

# The response to a request without TLS. Dragoman's own clients recognise its body (`sdk/recognition.py`).
PLAIN_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 34\r\nconnection: close\r\n\r\n"
    b"this port speaks TLS: use https://"
)

Context = Callable[[], ssl.SSLContext]
TlsReport = Callable[[ssl.SSLError, str], None]


class _Handshake(ssl.SSLObject):
    """The TLS of one connection. asyncio and uvloop close a connection whose handshake has failed without its last
    bytes, the alert that tells the client why. They are attached to the error, so that the acceptor sends them."""

    _outgoing: ssl.MemoryBIO

    @classmethod
    def _create(cls, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> _Handshake:
        made: _Handshake = super()._create(incoming, outgoing, *args, **kwargs)  # type: ignore[misc]
        made._outgoing = outgoing
        return made

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            error.__dict__[ALERT] = self._outgoing.read()
            raise


class HandshakeLimits(Protocol):
    """Limits on the handshakes of all listeners (R168)."""

    @property
    def is_full(self) -> bool:
        """True if no place is free."""

    def wait_time(self) -> float:
        """Seconds until a handshake may begin, if no other one ends before."""

    def when_one_ends(self, call: Callable[[], None]) -> None: ...

    def admits(self, mechanism: str, address: str) -> bool:
        """True if one more handshake of this address may begin."""

    def begin(self, mechanism: str, address: str, drop: Callable[[], None]) -> Any:
        """Count a handshake that begins. `drop` ends it, because another one needs its place."""

    def end(self, handshake: Any, *, is_done: bool) -> None:
        """Count the end of a handshake that `begin` returned."""


class TlsAcceptor:
    """`failed(error, address)` is called for each handshake that failed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        new_protocol: Callable[[], asyncio.Protocol],
        context: Context,
        failed: TlsReport,
        limits: HandshakeLimits,
    ) -> None:
        self._loop = loop
        self._listening = listening
        self._new_protocol = new_protocol
        self._context = context
        self._failed = failed
        self._limits = limits
        self._handshakes: set[asyncio.Task[bool]] = set()
        self._is_accepting = False
        self._is_closed = False
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more connections, and abort the handshakes in progress."""
        if not self._is_closed:
            self._pause()
            self._is_closed = True
            self._listening.close()
            for handshake in self._handshakes:
                handshake.cancel()

    def _resume(self, timer: asyncio.TimerHandle | None = None) -> None:
        if timer is not None:
            timer.cancel()
        if not self._is_closed and not self._is_accepting:
            self._is_accepting = True
            self._loop.add_reader(self._listening, self._accept)

    def _pause(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._listening)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_ITERATION):
            if seconds := self._limits.wait_time():
                self._pause()
                timer = self._loop.call_later(seconds, self._resume)
                if self._limits.is_full:
                    self._limits.when_one_ends(partial(self._resume, timer))
                return
            try:
                accepted, place = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._pause()
                self._loop.call_later(PAUSE, self._resume)
                return
            address = str(place[0])
            if not self._limits.admits(TLS, address):
                accepted.close()
                continue
            accepted.setblocking(False)
            handshake = self._loop.create_task(self._shake_hands(accepted))
            self._handshakes.add(handshake)
            counted = self._limits.begin(TLS, address, partial(_cancel, handshake))
            handshake.add_done_callback(partial(self._done, counted))

    async def _shake_hands(self, accepted: socket.socket) -> bool:
        """Returns whether the handshake succeeded."""
        try:
            host, port = accepted.getpeername()[:2]
            spare = accepted.dup()  # a failed handshake closes the other one
        except OSError:  # it has been closed already, or no file descriptors are left
            accepted.close()
            return False
        with spare:
            context = self._context()
            context.sslobject_class = _Handshake
            try:
                await self._loop.connect_accepted_socket(
                    self._new_protocol,
                    accepted,
                    ssl=context,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT,
                )
            except ssl.SSLError as error:
                self._failed(error, f"{host}:{port}")
                await self._tell(spare, error)
                return False
            except OSError:  # the client has closed the connection, or was too slow
                return False
        return True

    async def _tell(self, spare: socket.socket, error: ssl.SSLError) -> None:
        """Send the client of a failed handshake the reason, and wait a moment until it has read that."""
        alert: bytes = error.__dict__.get(ALERT, b"")
        last = PLAIN_REQUEST if error.reason == "HTTP_REQUEST" else alert or ALERT_OF_WRONG_PROTOCOL
        with suppress(OSError, TimeoutError):
            spare.setblocking(False)
            spare.send(last)
            spare.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(LINGER):
                left = MOST_READ
                while left > 0 and (data := await self._loop.sock_recv(spare, MOST_READ)):
                    left -= len(data)

    def _done(self, counted: Any, handshake: asyncio.Task[bool]) -> None:
        self._handshakes.discard(handshake)
        self._limits.end(counted, is_done=not handshake.cancelled() and handshake.result())


def _cancel(handshake: asyncio.Task[bool]) -> None:
    handshake.cancel()
