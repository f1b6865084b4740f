"""What we ask of a connection's transport beyond what uvicorn asks: tuned sockets, and a close that loses no answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

KEEPALIVE_IDLE = 15
KEEPALIVE_EVERY = 5
KEEPALIVE_TRIES = 3
USER_TIMEOUT_MS = 20_000


class LingeringTransport:
    """A transport for the response to a request whose body is not here yet: closing waits for who is still sending.

    Some clients send everything before they read anything, and an answer that comes early would be lost to them.
    """

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.close = close
        self.is_closing = transport.is_closing
        self.write = transport.write


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
