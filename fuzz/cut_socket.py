"""A socket and an event loop that do nothing by themselves, for streams whose every cut is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dragoman.carriers.carrier import Frame


class CutSocket:
    """A socket whose kernel takes and gives as many bytes as the input allows."""

    def __init__(self) -> None:
        self.room = 1 << 30
        self.taken = bytearray()  # bytes that the stream has sent
        self.arriving = bytearray()  # bytes for the stream

    def send(self, data: Frame) -> int:
        count = min(len(data), self.room)
        if not count:
            raise BlockingIOError
        self.room -= count
        self.taken += data[:count]
        return count

    def sendmsg(self, buffers: Iterable[Frame]) -> int:
        return self.send(b"".join(buffers))

    def recv(self, count: int) -> bytes:
        if not self.arriving:
            raise BlockingIOError
        data = bytes(self.arriving[:count])
        del self.arriving[:count]
        return data

    def fileno(self) -> int:
        raise OSError("no file")

    def shutdown(self, how: int) -> None:
        raise OSError("no file")

    def close(self) -> None:
        pass


class StillLoop:
    """An event loop that does nothing by itself."""

    def __init__(self) -> None:
        self.readable: Callable[[], object] | None = None
        self.writable: Callable[[], object] | None = None
        self._timers: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def run_timers(self) -> None:
        timers, self._timers = self._timers, []
        for call, args in timers:
            call(*args)

    def add_reader(self, _: object, call: Callable[[], object]) -> None:
        self.readable = call

    def add_writer(self, _: object, call: Callable[[], object]) -> None:
        self.writable = call

    def remove_reader(self, _: object) -> None:
        self.readable = None

    def remove_writer(self, _: object) -> None:
        self.writable = None

    def call_later(self, _: float, call: Callable[..., object], *args: object) -> None:
        self._timers.append((call, args))

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        call(*args)
