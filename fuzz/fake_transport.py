"""An HTTP connection's transport without a socket."""

from __future__ import annotations

import asyncio

from dragoman.http.protocol import LimitedProtocol


class FakeTransport(asyncio.Transport):
    """Keeps the written bytes. `unread` is the number of bytes that the remote side has not read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: tuple[str, int] = ("127.0.0.1", 5)) -> None:
        super().__init__({"peername": address, "sockname": ("127.0.0.1", 7480)})
        self._loop = loop
        self.protocol: LimitedProtocol | None = None
        self.written = b""
        self.unread = 0
        self.is_finished = False
        self.is_closed = False
        self.is_aborted = False
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_finished, "bytes after the end of the response"
        if not self.is_closed:
            self.written += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_finished = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            assert self.protocol is not None
            self._loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.is_aborted = True
        self.close()

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return self.unread
