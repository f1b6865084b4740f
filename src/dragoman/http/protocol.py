"""The protocol of an HTTP connection: uvicorn's, with checks for requests that are too large or malformed.

The checks precede the parser. They keep a head until it is complete, pass the parser one request at a time, and keep
pipelined requests, so that a connection has at most one request in the application (R125 to R128).
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from dragoman.http import framing
from dragoman.http.admission import CONNECTED, ORIGIN
from dragoman.http.disconnect import HANGUP, DisconnectSignal
from dragoman.http.framing import BadRequest, Chunks
from dragoman.http.limited_connection import (
    ANSWER,
    CHUNKS,
    HEAD,
    IDLE,
    LENGTH,
    MOST_AHEAD,
    RESERVE_TIMEOUT,
    LimitedConnection,
)
from dragoman.http.problems import problem
from dragoman.http.transports import ResponseTransport

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application


class LimitedProtocol(LimitedConnection):
    """Checks the bytes of a connection before the parser, and passes requests to the application."""

    # ------------------------------------------------------------ bytes in

    def data_received(self, data: bytes) -> None:
        self._watch.traffic.received += len(data)
        if self._kept:
            data, self._kept = self._kept + data, b""
        try:
            while data:
                phase = self._phase
                if phase is IDLE or phase is HEAD:
                    data = self._take_head(data)
                elif phase is LENGTH:
                    data = self._take_body(data, self._left)
                elif phase is CHUNKS:
                    assert self._chunks is not None
                    data = self._take_body(data, self._chunks.end(data))
                elif phase is ANSWER:
                    self._kept, data = data, b""
                    if len(self._kept) > MOST_AHEAD:
                        self.flow.pause_reading()
                else:
                    return  # input after a rejection
        except BadRequest as error:
            self._refuse(error.fault)
        except httptools.HttpParserError:
            assert self._head is not None
            self._refuse(framing.BAD_CHUNK if self._phase is CHUNKS else framing.parser_error(self._head))

    def _take_head(self, data: bytes) -> bytes:
        """Pass a complete head to the parser, or keep its beginning. Returns the bytes after it."""
        if data[:1] == b"\r" and not self._has_blank:  # one empty line before a request is ignored (RFC 9112, 2.2)
            if data[:2] == b"\r\n":
                self._has_blank, data = True, data[2:]
            if data in (b"\r", b""):
                return self._keep(data)
        end = data.find(b"\r\n\r\n", 0, self._limits.max_head) + 4
        if end < 4:
            if fault := framing.check_part(data, self._limits):
                raise BadRequest(fault)
            return self._keep(data)
        rest = b""
        if end < len(data):
            data, rest = data[:end], data[end:]
        self._head = framing.read_head(data, self._limits)
        if self._no_room is not None and not _is_health_check(self._head, self._open_paths):
            if not self._promote(self._scope_of(self._head, data)):
                raise BadRequest(self._no_room)
        self._is_new = self._has_blank = False
        self._following = len(rest)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ignore_upgrade(data)
        if self._fault is not None:
            raise BadRequest(self._fault)
        return rest

    def _scope_of(self, found: re.Match[bytes], head: bytes) -> dict[str, Any]:
        """Return what `ConnectionCheck.by_request` reads of a head that is not parsed yet."""
        pairs = [line.partition(b":") for line in head.split(b"\r\n")[1:] if line]
        fields = [(name.lower(), value.strip()) for name, _, value in pairs]
        extensions = {CONNECTED: self._admission, ORIGIN: self._user}
        return {"method": found[1].decode(), "headers": fields, "client": self.client, "extensions": extensions}

    def _ignore_upgrade(self, head: bytes) -> None:
        """Parse the head again without its upgrade: otherwise the parser takes what follows for another protocol."""
        if self._fault is None:
            self._is_upgrade = False
            self.parser.feed_data(framing.without_upgrade(head))

    def _keep(self, part: bytes) -> bytes:
        if part and self._phase is IDLE:
            self._phase = HEAD
            if not self._is_new:  # the first head must come soon after the connection
                self._due = self.loop.time() + self._limits.head_timeout
        self._kept = part
        return b""

    def _take_body(self, data: bytes, end: int | None) -> bytes:
        """Pass the bytes of this body to the parser; it ends at `end`, if known. Returns the bytes after it."""
        rest = b""
        if end is not None and end < len(data):
            data, rest = data[:end], data[end:]
        size = len(data)
        self._body_received += size
        self.parser.feed_data(data)
        if self._chunks is None:
            self._left -= size
            is_whole = not self._left
        else:
            is_whole = end is not None
        if is_whole:
            self._chunks = None
            self._watch.bodies.forget(self)
            self.flow.resume_reading()  # otherwise a disconnect would not be noticed before the response
            if self.cycle.response_complete:
                self._await_request()
            else:
                self._phase, self._due = ANSWER, inf
        elif not self.cycle.response_complete:  # otherwise the body is not kept
            self._make_room(size)
        return rest

    def _make_room(self, size: int) -> None:
        """Reject the largest body if all unfinished bodies together exceed the limit."""
        bodies = self._watch.bodies
        largest = bodies.grow(self, size)
        if largest is self:
            raise BadRequest(bodies.fault())
        if largest is not None:
            largest.give_way()

    # ------------------------------------------------------------ callbacks of the parser and the application

    def on_headers_complete(self) -> None:
        assert self._head is not None
        try:
            length = framing.body_length(self.headers, self._head, self._limits, self._watch.hosts)
            check = self._watch.check
            if check.rejects_forwarded and framing.is_forwarded(self.headers):
                if not _is_health_check(self._head, check.public_paths):
                    raise BadRequest(framing.FORWARDED)
        except BadRequest as error:
            self._fault = error.fault  # an exception would become an error of the parser
            if error.fault.status == 413:
                self._name_operation(self._head)
            return
        if self.parser.should_upgrade():
            self._is_upgrade = True
            return
        if not length:
            self._phase, self._due = ANSWER, inf
        else:
            self._body_started, self._body_received = self.loop.time(), 0
            if length == framing.IN_CHUNKS:
                self._phase, self._chunks = CHUNKS, Chunks(self._limits)
            else:
                self._phase, self._left = LENGTH, length
        super().on_headers_complete()
        if self._no_room is not None and self._no_room.status == 503:
            self.cycle.keep_alive = False  # the next connection needs the place

    def _name_operation(self, head: re.Match[bytes]) -> None:
        """Set the scope as for the application: uvicorn does not get that far."""
        target = httptools.parse_url(head[2])
        self.scope["method"] = head[1].decode()
        self.scope["raw_path"] = target.path
        self.scope["query_string"] = target.query or b""
        self.scope["extensions"] = {CONNECTED: self._admission, ORIGIN: self._user}  # type: ignore[dict-item]

    def on_message_complete(self) -> None:
        if self._fault is None and not self._is_upgrade:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._watch.bodies.forget(self)
        self._disconnect.call = None  # it refers to the job, which this connection would keep until the next request
        if self.transport.is_closing():
            return
        if self._response is not None:
            self._response.flush()
        self.flow.resume_reading()
        if self._phase is ANSWER:
            self._await_request()
            if self._kept:
                self.data_received(b"")

    def _await_request(self) -> None:
        self._phase = IDLE
        is_admitted = self._no_room is None
        self._due = self.loop.time() + (self._limits.idle_timeout if is_admitted else RESERVE_TIMEOUT)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._disconnect = DisconnectSignal()
        self._running = cycle
        extensions: Any = {HANGUP: self._disconnect, CONNECTED: self._admission, ORIGIN: self._user}
        cycle.scope["extensions"] = extensions
        is_incomplete = self._phase is not ANSWER and not 0 < self._left <= self._following
        close = self._close_gracefully if is_incomplete else None
        self._response = ResponseTransport(self.transport, self._watch.traffic, self._watch.common_headers, close)
        cycle.transport = self._response  # type: ignore[assignment]
        task = self.loop.create_task(self._run(cycle, app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _run(self, cycle: Any, app: Any) -> None:
        """Run the application. Exceptions and incomplete responses are reported to the server, not to the client."""
        try:
            await app(cycle.scope, cycle.receive, cycle.send)
            if not cycle.response_complete and not cycle.disconnected:
                raise RuntimeError("the application returned without a complete response")
        except Exception as error:
            self._watch.failed(error)
            if not cycle.response_started:
                await INTERNAL_ERROR(cycle.scope, cycle.receive, cycle.send)
            elif not cycle.response_complete:
                cycle.transport.flush()
                self.transport.close()
        finally:
            cycle.on_response = _nothing  # breaks the reference cycle


def _is_health_check(head: re.Match[bytes], paths: frozenset[bytes]) -> bool:
    return head[1] in (b"GET", b"HEAD") and head[2].partition(b"?")[0] in paths


def _nothing() -> None: ...


INTERNAL_ERROR = problem(
    500,
    "internal-error",
    "Internal error",
    "See the server's log.",
    [("connection", "close"), ("cache-control", "no-store")],
)
