"""TCP connections that can be cut: each goes through a port of its own, in a thread with its own event loop.

A wire that is cut ends its connections and accepts none. One that is held keeps them, and moves no byte, in one
direction or in both; when it is mended, the bytes that waited go on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from dragoman.server.event_loop import loop_factory

LOOPBACK = "127.0.0.1"
CHUNK = 1 << 16
T = TypeVar("T")


class Wire:
    """One port, and the port to which its connections go on."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.is_broken = False
        self.gates = (asyncio.Event(), asyncio.Event())  # forth and back: bytes may pass
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        for gate in self.gates:
            gate.set()
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()

    def cut(self) -> None:
        self.is_broken = True
        for writer in self._writers:
            writer.transport.abort()

    def hold(self, forth: bool, back: bool) -> None:
        for gate, is_held in zip(self.gates, (forth, back), strict=True):
            if is_held:
                gate.clear()

    def mend(self) -> None:
        self.is_broken = False
        for gate in self.gates:
            gate.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            if self.is_broken:
                return
            there, other = await asyncio.open_connection(LOOPBACK, self.target)
            self._writers.add(other)
            pumps = [
                asyncio.create_task(self._pump(reader, other, self.gates[0])),
                asyncio.create_task(self._pump(there, writer, self.gates[1])),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass
        finally:
            for each in (writer, other):
                if each is not None:
                    each.transport.abort()
                    self._writers.discard(each)

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await gate.wait()
                writer.write(data)
                await writer.drain()


class Wires:
    """All wires, by the names of both ends."""

    def __init__(self) -> None:
        self._loop = loop_factory("auto")()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._wires: dict[tuple[str, str], Wire] = {}

    def open(self, near: str, far: str, target: int) -> int:
        """Make a wire. Returns the port for the near end."""

        async def make() -> Wire:
            wire = Wire(target)
            await wire.open()
            return wire

        wire = self._wires[near, far] = self._run(make())
        return wire.port

    def of(self, name: str) -> list[tuple[Wire, bool]]:
        """Return the wires of a process; True: it is at the near end."""
        return [(wire, near == name) for (near, far), wire in self._wires.items() if name in (near, far)]

    def cut(self, name: str, others: Sequence[str] = ()) -> None:
        """Cut the wires of a process: all, or those to these others."""
        chosen = [
            wire
            for (near, far), wire in self._wires.items()
            if name in (near, far) and (not others or (near in others and far in others))
        ]
        self._do(lambda: [wire.cut() for wire in chosen])

    def hold(self, name: str, out: bool = True, into: bool = True) -> None:
        """Hold what a process sends, what it gets, or both."""
        self._do(lambda: [wire.hold(out if near else into, into if near else out) for wire, near in self.of(name)])

    def mend(self, name: str) -> None:
        self._do(lambda: [wire.mend() for wire, _ in self.of(name)])

    def close(self) -> None:
        async def end() -> None:
            for wire in self._wires.values():
                wire.close()
            others = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
            await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 30.0)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, act: Callable[[], object]) -> None:
        async def acting() -> None:
            act()

        self._run(acting())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30.0)
