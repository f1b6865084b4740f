"""Socket options of a connection, and a transport for responses that counts bytes and closes without losing data."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

KEEPALIVE_IDLE = 15
KEEPALIVE_EVERY = 5
KEEPALIVE_TRIES = 3
USER_TIMEOUT_MS = 20_000

CONTINUE = b"100"  # the status of an interim response
LENGTH_FIELD = b"\r\ncontent-length: "
LARGE_BODY = 65_536  # bytes


class Traffic:
    """Bytes received and sent over all connections of a server."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0


class ResponseTransport:
    """The transport of a response: it adds the headers of every response, counts bytes, and may have its own `close`.

    A head whose body follows at once is sent with it: two packets would cost more than all else that is done here.
    If the request's body is incomplete, closing waits for the client: some clients send everything before they read,
    and would lose an early response.
    """

    __slots__ = ("_close", "_common", "_head", "_is_started", "_traffic", "_write", "is_closing")

    def __init__(
        self, transport: asyncio.Transport, traffic: Traffic, common: bytes, close: Callable[[], None] | None = None
    ) -> None:
        """`common`: header lines of every response."""
        self._traffic = traffic
        self._write = transport.write
        self._close = close if close is not None else transport.close
        self._common = common
        self._head = b""  # to be sent with the beginning of the body
        self._is_started = False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._is_started and data[9:12] != CONTINUE:
            self._is_started = True
            line, _, fields = data.partition(b"\r\n")
            data = b"%b\r\n%b%b" % (line, self._common, fields)
            if LENGTH_FIELD in data:
                self._head = data
                return
        if self._head:
            if len(data) > LARGE_BODY:  # joining would copy it
                self.flush()
            else:
                data, self._head = self._head + data, b""
        if data:
            self._traffic.sent += len(data)
            self._write(data)

    def flush(self) -> None:
        """Send a head that no body has followed, as in a response to HEAD."""
        if self._head:
            head, self._head = self._head, b""
            self._traffic.sent += len(head)
            self._write(head)

    def close(self) -> None:
        self.flush()
        self._close()


def tune(transport: asyncio.Transport) -> None:
    """Set TCP options: no Nagle delay, and detection of dead hosts (R21).

    asyncio sets the first one only on sockets that were created with their protocol's number.
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
            pass  # the connection has ended already, and `connection_lost` follows


def end_writing(transport: asyncio.Transport) -> None:
    """Send the end of the stream after the last response. With TLS there is no such half close: the client ends the
    connection because of `connection: close`, or the server does when it has waited long enough."""
    if transport.can_write_eof():
        transport.write_eof()
