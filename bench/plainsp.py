"""The yardstick of MemoDB: a bare SP server that repeats every message, as anybody would write it with asyncio.

python -m bench.plainsp PORT

The broker's own carrier on an asyncio protocol, the event loop that Python brings, and nothing else of ours. specho.py
is the same on the broker's own streams and loop: what no Python program could be much below.
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
    """Repeat until killed."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
