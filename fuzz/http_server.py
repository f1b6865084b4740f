"""Fuzz target: an HTTP connection without a socket.

Responses and rejections do not depend on the cut, but for the choice among several errors of one head. Every connection
ends when its time is up.
"""

from __future__ import annotations

import asyncio
import random
import re
from typing import TYPE_CHECKING, Final
from zlib import crc32

from dragoman.http.limited_connection import LINGER, MOST_AHEAD
from dragoman.http.limits import HttpLimits
from dragoman.http.protocol import LimitedProtocol
from dragoman.http.server import HttpServer
from fuzz.fake_transport import FakeTransport
from fuzz.http_framing import STATUSES_OF_HEADS

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

LIMITS: Final = HttpLimits(max_head=400, max_fields=10, max_target=100, max_payload=200)
TURNS: Final = 6  # iterations of the loop in which a request is served
DATE: Final = re.compile(rb"date: [^\r]*\r\n")
STATUS: Final = re.compile(rb"HTTP/1\.1 (\d+) ")

Seen = tuple[bytes, list[int], bool]  # served responses, statuses of rejections, and whether the connection has ended


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Return the method, the target and the body of a request."""
    body = b""
    is_whole = False
    while not is_whole:
        message = await receive()
        if message["type"] != "http.request":
            return
        body += message["body"]
        is_whole = not message["more_body"]
    assert len(body) <= LIMITS.max_payload
    response = b" ".join((scope["method"].encode(), scope["raw_path"], scope["query_string"], body))
    headers = [(b"content-length", b"%d" % len(response))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": response})


def test_one_input(data: bytes) -> None:
    whole = seen(data, [len(data)])
    seed = crc32(data)
    sizes = [1] if seed & 1 else random.Random(seed).choices(range(1, 60), k=7)
    assert seen(data, sizes) == whole
    served, rejections, _ = whole
    assert len(rejections) <= 1
    assert set(STATUS.findall(served)) <= {b"200"}


def seen(data: bytes, sizes: list[int]) -> Seen:
    """Serve a connection that sends the bytes in pieces of these sizes, again and again."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_served(loop, data, sizes))
    finally:
        loop.close()


async def _served(loop: asyncio.AbstractEventLoop, data: bytes, sizes: list[int]) -> Seen:
    reasons: list[str] = []
    errors: list[BaseException] = []
    server = HttpServer(loop, echo, LIMITS, [], lambda reason, *_: reasons.append(reason), errors.append)
    transport = FakeTransport(loop)
    transport.protocol = protocol = server.new_protocol()
    protocol.connection_made(transport)
    try:
        await _send(data, sizes, transport, protocol)
        written, is_ended = DATE.sub(b"", transport.written), transport.is_closed or transport.is_finished
        found = len(reasons)
        await _wait(transport, protocol, loop.time())
    finally:
        server.abort()
        await asyncio.sleep(0)
    assert errors == []
    responses = list(STATUS.finditer(written))
    assert len(responses) >= found
    rejected = responses[len(responses) - found :]
    statuses = [int(each[1]) for each in rejected]
    if statuses and statuses[0] in STATUSES_OF_HEADS:  # which of several errors is found first depends on the cut
        statuses[0] = STATUSES_OF_HEADS[0]
    return written[: rejected[0].start() if rejected else None], statuses, is_ended


async def _send(data: bytes, sizes: list[int], transport: FakeTransport, protocol: LimitedProtocol) -> None:
    pos = turn = 0
    while pos < len(data) and not transport.is_closed and not transport.is_finished:
        size = sizes[turn % len(sizes)]
        protocol.data_received(data[pos : pos + size])
        assert len(protocol._kept) <= max(LIMITS.max_head, MOST_AHEAD) + size
        pos += size
        turn += 1
        if turn % 8 == 0:
            await asyncio.sleep(0)
    for _ in range(TURNS * (1 + data.count(b"\r\n\r\n"))):
        await asyncio.sleep(0)


async def _wait(transport: FakeTransport, protocol: LimitedProtocol, now: float) -> None:
    """Let all time-outs pass. A connection that is silent for so long ends (R125)."""
    for seconds in (LIMITS.head_timeout, LIMITS.idle_timeout, LIMITS.body_timeout, LIMITS.body_timeout + LINGER):
        if not transport.is_closed:
            protocol.look(now + seconds + 1, 0.5)
            await asyncio.sleep(0)
    assert transport.is_closed, "a silent connection is kept"
