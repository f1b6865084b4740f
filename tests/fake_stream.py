"""A stream of bytes without a socket, for the runner."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from dragoman.carriers.carrier import Frame
from dragoman.streams.byte_stream import ByteStream


class FakeStream(ByteStream):
    """Accepts as many bytes as there is room for, and keeps them for the test."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self.backlog = 0
        self.closed_in_order = False
        self.room = inf
        self.waiting = bytearray()
        self.taken = bytearray()
        self.is_closed = False
        self._low = -1
        self._when_low: Callable[[], None] = lambda: None

    def when_low(self, mark: int, call: Callable[[], None]) -> None:
        self._low, self._when_low = mark, call

    def write(self, buffers: list[Frame]) -> None:
        for buffer in buffers:
            self.waiting += buffer
        self.drain()

    def drain(self) -> None:
        count = int(min(len(self.waiting), self.room))
        self.taken += self.waiting[:count]
        del self.waiting[:count]
        self.room -= count
        self.sent += count
        self.backlog = len(self.waiting)
        if self.backlog <= self._low:
            self._low = -1
            self._when_low()

    def close(self) -> None:
        self.is_closed = True

    def read_dry(self) -> bool:
        return not self.is_closed

    def unread(self) -> int:
        return 0
