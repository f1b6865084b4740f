"""Lower limit of MemoDB: a bare SP server that echoes every message, on the broker's own carrier and streams.

python -m bench.specho PORT

It has no broker, no dialect and no limits; the difference to Dragoman is the cost of Dragoman's logic. As the runner
does, it gathers the output of one iteration of the loop for each connection and writes it once.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from functools import partial

from dragoman.carriers.carrier import Frame, Messages
from dragoman.carriers.sp import Sp
from dragoman.server.event_loop import loop_factory
from dragoman.server.tuning import tune_process
from dragoman.streams.sockets import listen_tcp, tune
from dragoman.streams.stream import Stream


class Caller:
    """One connection, and its output of this iteration."""

    __slots__ = ("carrier", "out", "stream")

    def __init__(self, carrier: Sp, stream: Stream) -> None:
        self.carrier = carrier
        self.stream = stream
        self.out: list[Frame] = []


class Echo:
    """All connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: list[Caller] = []

    def accept(self, listening: socket.socket) -> None:
        """Accept the next connection and send the greeting."""
        try:
            accepted, _ = listening.accept()
        except BlockingIOError:
            return
        tune(accepted)
        carrier = Sp("REP")
        caller = Caller(carrier, Stream(self._loop, accepted, carrier))
        caller.stream.start(partial(self._arrived, caller), partial(self._ended, caller))
        caller.stream.write([*carrier.outgoing])

    def _arrived(self, caller: Caller, messages: Messages) -> None:
        if not messages:
            return
        if not caller.out:
            if not self._dirty:
                self._loop.call_soon(self._flush)
            self._dirty.append(caller)
        encode = caller.carrier.encode
        for message in messages:
            assert isinstance(message, list)
            caller.out += encode(message)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for caller in dirty:
            buffers, caller.out = caller.out, []
            caller.stream.write(buffers)

    def _ended(self, caller: Caller, _: str) -> None:
        caller.stream.close()


async def serve(port: int) -> None:
    """Echo until killed."""
    loop = asyncio.get_running_loop()
    listening = listen_tcp("127.0.0.1", port)
    loop.add_reader(listening, Echo(loop).accept, listening)
    tune_process()
    await loop.create_future()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory("auto")) as runner:
        runner.run(serve(int(sys.argv[1])))
