"""What we ask of a connection's transport beyond what uvicorn asks: tuned sockets, and a close that loses no answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

KEEPALIVE_IDLE = 15
KEEPALIVE_EVERY = 5
KEEPALIVE_TRIES = 3
USER_TIMEOUT_MS = 20_000


class Traffic:
    """Bytes that came and went, over all connections of a server."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0


class ResponseTransport:
    """What a response is written to: it counts. How it closes is up to whoever made it.

    If the request's body is not here yet, closing waits for who is still sending: some clients send everything before
    they read anything, and an answer that comes early would be lost to them.
    """

    __slots__ = ("_traffic", "_write", "close", "is_closing")

    def __init__(self, transport: asyncio.Transport, traffic: Traffic, close: Callable[[], None] | None = None) -> None:
        self._traffic = traffic
        self._write = transport.write
        self.close = close if close is not None else transport.close
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        self._traffic.sent += len(data)
        self._write(data)


def tune(transport: asyncio.Transport) -> None:
    """No waiting for fuller packets, and a caller whose host is gone is noticed (R21).

    asyncio would see to the first of it, but only on sockets that were made with their protocol's number.
    """
    connected = transport.get_extra_info("socket")
    if connected is not None:
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TRIES)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        except OSError:
            pass  # it is gone already, and we are about to hear of it
