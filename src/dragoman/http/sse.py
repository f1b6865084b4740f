"""Server-sent events: streams, their number, and their end (R127, R128)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from dragoman.core.rights import Principal
from dragoman.core.shares import Shares, administers, holder_of, share_problem
from dragoman.http.admission import admission_of
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.hosts import is_local
from dragoman.http.problems import problem, problem_response
from dragoman.operations.schemas import ErrorView

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

MOST_WAITING = 256
MOST_BYTES = 1 << 20  # of waiting events; one event may be larger
KEEP_ALIVE = 15.0
COMMENT = b":\n\n"
OVERFLOW = b"event: overflow\ndata:\n\n"
STOPPING = ErrorView(kind="draining", detail="the broker is shutting down; open the stream again later")
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # otherwise a proxy would buffer events
]


class Streams:
    """The open event streams, at most `limit`, and of those a share for each principal (R254)."""

    def __init__(self, limit: int) -> None:
        self.shares = Shares(limit)
        self._open: dict[EventStream, str] = {}  # with their holders
        self.is_closed = False  # the broker stops

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, stream: EventStream, scope: Scope) -> bool:
        principal, holder = _holder_of(scope)
        is_administrator = principal is not None and administers(principal)
        if self.is_closed or not self.shares.allows_holder(holder, is_administrator=is_administrator):
            return False
        self._open[stream] = holder
        self.shares.enter(holder)
        return True

    def problem(self, scope: Scope) -> str:
        """Return the sentence for a request that is refused."""
        shares = self.shares
        principal, holder = _holder_of(scope)
        if shares.taken >= shares.most or principal is None:
            return f"max_streams is {shares.most}."
        held = shares.held(holder)
        return f"{share_problem(principal.name, held, shares.taken, shares.most, 'event streams', 'max_streams')}."

    def leave(self, stream: EventStream) -> None:
        holder = self._open.pop(stream, None)
        if holder is not None:
            self.shares.leave(holder)

    def end(self) -> None:
        """End all streams, and accept no more."""
        self.is_closed = True
        for stream in list(self._open):
            stream.end()


class EventStream:
    """A response that stays open and sends published events until it is ended. For one request.

    `ended` is called once at the end, also if the stream was never opened.
    """

    def __init__(
        self, streams: Streams, ended: Callable[[], None] | None = None, keep_alive: float = KEEP_ALIVE
    ) -> None:
        self._streams = streams
        self._ended = ended
        self._keep_alive = keep_alive
        self._waiting: deque[bytes] = deque()
        self._size = 0  # bytes of waiting events
        self._changed = asyncio.Event()
        self._is_over = False

    @property
    def room(self) -> int:
        """Number of events that may be queued before the reader is too slow."""
        return MOST_WAITING - len(self._waiting) if self._size < MOST_BYTES else 0

    def publish(self, event: str, data: bytes | str, id: str | None = None) -> None:
        """Queue an event. If too many wait, the reader is too slow: it gets these, an overflow event, and the end."""
        if self._is_over:
            return
        if len(self._waiting) >= MOST_WAITING or self._size >= MOST_BYTES:
            self._waiting.append(OVERFLOW)
            self.end()
        else:
            written = event_bytes(event, data, id)
            self._waiting.append(written)
            self._size += len(written)
            self._changed.set()

    def replace(self, event: str, data: bytes) -> None:
        """Queue an event in the place of those that are not sent yet: a slow reader gets the newest only."""
        if not self._is_over:
            self._waiting.clear()
            self._size = 0
            self.publish(event, data)

    def end(self) -> None:
        """End the stream after the waiting events."""
        self._is_over = True
        self._changed.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._streams.enter(self, scope):
                await self._stream(scope, send)
            elif self._streams.is_closed:
                await problem_response(STOPPING)(scope, receive, send)
            else:
                detail = self._streams.problem(scope)
                refusal = problem(429, "too-many-streams", "Too many event streams", detail, [("retry-after", "5")])
                await refusal(scope, receive, send)
        finally:
            self._is_over = True
            self._streams.leave(self)
            ended, self._ended = self._ended, None  # it refers to this stream
            if ended is not None:
                ended()

    async def _stream(self, scope: Scope, send: Send) -> None:
        disconnect: DisconnectSignal | None = scope.get("extensions", {}).get(HANGUP)
        if disconnect is not None:
            disconnect.call = self._drop
            if disconnect.is_gone:
                return
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": COMMENT, "more_body": True})  # shows readers that it is open
        while self._waiting or not self._is_over:
            if not self._waiting:
                await self._wait()
            body = b"".join(self._waiting) or (b"" if self._is_over else COMMENT)
            self._waiting.clear()
            self._size = 0
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _wait(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(self._keep_alive):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _drop(self) -> None:
        self._waiting.clear()
        self.end()


def _holder_of(scope: Scope) -> tuple[Principal | None, str]:
    """Return the principal of a request, and the holder of its place. Without a principal: its address."""
    admission, client = admission_of(scope), scope.get("client")
    address = "" if client is None or is_local(client[0]) else str(client[0])
    if admission is None:
        return None, address
    return admission.principal, holder_of(admission.principal, address)


def event_bytes(event: str, data: bytes | str, id: str | None = None) -> bytes:
    """Encode an event. A line end in a name would begin another field, so it is not allowed."""
    if any(end in each for each in (event, id or "") for end in "\r\n\0"):
        raise ValueError("the name or id of an event contains a line end or NUL")
    raw = data.encode() if isinstance(data, str) else data
    lines = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"".join(
        (
            b"id: %b\n" % id.encode() if id is not None else b"",
            b"event: %b\n" % event.encode(),
            *(b"data: %b\n" % line for line in lines),
            b"\n",
        )
    )
