"""Baseline of MemoDB: a bare SP server on plain asyncio that echoes every message.

python -m bench.plainsp PORT

It uses the broker's carrier on an asyncio protocol and Python's own event loop, and nothing else of Dragoman. specho.py
is the same on the broker's own streams and loop, the lower limit for a Python program.
"""

from __future__ import annotations

import asyncio
import sys

from dragoman.carriers.sp import Sp


class Echo(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._carrier = Sp("REP")
        transport.write(b"".join(self._carrier.outgoing))

    def data_received(self, data: bytes) -> None:
        for message in self._carrier.feed(data):
            assert isinstance(message, list)
            self._transport.writelines(self._carrier.encode(message))


async def serve(port: int) -> None:
    """Echo until killed."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
