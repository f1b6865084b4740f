"""Baseline of large jobs: a plain asyncio server that echoes bytes, without any code of Dragoman.

python -m bench.plainecho PORT SIZE
"""

from __future__ import annotations

import asyncio
import sys


async def serve(port: int, size: int) -> None:
    """Echo this many bytes at a time, until killed."""

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(await reader.readexactly(size))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(repeat, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
