"""One HTTP connection: its start, its time-outs and limits, and its end (R125 to R128).

It has no timer: `look` is called periodically. Bytes and requests are handled in `protocol.py`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from enum import Enum
from math import inf
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from dragoman.core.owners import network_of
from dragoman.core.shares import administers, holder_of, share_problem
from dragoman.http.admission import Admission, is_revoked
from dragoman.http.disconnect import DisconnectSignal
from dragoman.http.framing import Chunks, RequestError
from dragoman.http.hosts import is_local
from dragoman.http.problems import MEDIA_TYPE, problem_body
from dragoman.http.security_headers import NO_STORE, header_lines
from dragoman.http.server_state import HttpServerState
from dragoman.http.transports import ResponseTransport, end_writing, tune

LINGER = 2.0  # seconds to keep reading after an error response; closing with unread data would discard the response
LAST_LINGER = 0.1  # seconds, when the server is closing
MOST_AHEAD = 1 << 16  # bytes of pipelined requests
STALLED = 10.0  # seconds without progress after which a full send buffer ends a connection
RESERVE = 128  # connections above the limits; beyond this number the oldest is closed
RESERVE_TIMEOUT = 1.0  # seconds in which one of them must send a health check
REVOKED = "revoked"

STOPPING = RequestError(503, "draining", "Draining", "The broker is shutting down; retry later.")


class Phase(Enum):
    IDLE = "idle"  # no byte of a request has come
    HEAD = "head"  # a head is incomplete
    LENGTH = "length"  # a body of known length
    CHUNKS = "chunks"  # a chunked body
    ANSWER = "answer"  # the request is complete, its response is not
    REFUSED = "refused"  # rejected, or responded early: input is ignored


IDLE, HEAD, LENGTH, CHUNKS, ANSWER, REFUSED = Phase


class LimitedConnection(HttpToolsProtocol):
    """Start, time-outs and end of a connection."""

    def __init__(self, config: Config, watch: HttpServerState) -> None:
        super().__init__(config, watch.shared, {}, watch.loop)
        self.access_log = False
        self.address = "unix"
        self._watch = watch
        self._limits = watch.limits
        self._phase = IDLE
        self._kept = b""  # an unfinished head, or pipelined requests
        self._due = inf  # end of the time for the current phase
        self._is_new = True  # no request yet
        self._has_blank = False  # an empty line came before this head
        self._head: re.Match[bytes] | None = None  # the head that is being parsed
        self._fault: RequestError | None = None  # its error
        self._is_upgrade = False  # it requests another protocol
        self._following = 0  # bytes that came with the head
        self._left = 0  # bytes of a body that are still to come
        self._chunks: Chunks | None = None
        self._body_started = 0.0  # start of a body
        self._body_received = 0  # bytes of it
        self._unsent = 0  # bytes that wait to be written, as they are counted (L6)
        self._looked = 0  # the same at the last check
        self._progress_at = 0.0  # time of the last progress
        self._host = ""
        self._network = ""  # under which limits count its address (R213)
        self._disconnect = DisconnectSignal()
        self._running: RequestResponseCycle | None = None
        self._response: ResponseTransport | None = None  # of the running request
        # In the reserve only health checks are served, all other requests get this error (R127).
        self._no_room: RequestError | None = None
        self._open_paths = watch.health_paths
        self._admission: Admission | None = None  # None: its requests must prove their principal
        self._user = ""  # `uid N`, if the kernel names it
        self._is_counted = False  # it has a place that is not in the reserve
        self.holder = ""  # of its place (`core/shares.py`)

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the client (DER), or None if it has shown none."""
        tls: ssl.SSLObject | None = self.transport.get_extra_info("ssl_object")
        return tls.getpeercert(True) if tls is not None else None

    def _has_resumed(self) -> bool:
        """Tell if the check of the client's certificate was skipped, because TLS 1.2 resumed a session (R140). The
        session of an aborted connection is forgotten, so that the next one cannot resume it."""
        tls: ssl.SSLObject | None = self.transport.get_extra_info("ssl_object")
        return tls is not None and bool(tls.session_reused) and tls.context.verify_mode != ssl.CERT_NONE

    # ------------------------------------------------------------ start

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        watch = self._watch
        now = self.loop.time()
        if self.client is not None:
            host, port = self.client
            tune(transport)
            self._host, self.address = host, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if self.server is not None and self.server[1] is not None:
            watch.hosts.allow_address(self.server[0])
        self._progress_at = now
        self._due = now + self._limits.head_timeout
        self._network = network_of(self._host)
        watch.by_address[self._network] += 1
        watch.wake()
        if watch.is_closing or self._has_resumed():
            transport.abort()
        elif fault := self._rejection() or self._over_limit():
            self._enter_reserve(fault, now)
        else:
            watch.shares.enter(self.holder)
            self._is_counted = True

    def _rejection(self) -> RequestError | None:
        """Check the user and the certificate, before a byte is read (T22)."""
        check = self._watch.check
        try:
            socket = self.transport.get_extra_info("socket")
            found = check.admit(socket, self.peer_certificate)
            self._user = check.user(socket)
        except OSError:  # it has been closed already
            self.transport.abort()
            return None
        if isinstance(found, RequestError):
            self._open_paths = check.public_paths
            return found
        self._admission = found
        self.holder = self._user or self._network if found is None else holder_of(found.principal, self._network)
        return None

    def end_if_revoked(self) -> bool:
        """Abort, if the principal of the connection or of its running request has lost its access."""
        cycle = self._running
        is_ended = self._admission is not None and not self._admission.is_current()
        if not is_ended and (cycle is None or cycle.response_complete or not is_revoked(cycle.scope)):
            return False
        self._watch.report(REVOKED, self.address, "")
        self.transport.abort()
        return True

    def _over_limit(self) -> RequestError | None:
        limits, watch = self._limits, self._watch
        is_local_client = is_local(self._host)
        most = (
            limits.max_connections_per_local_address if is_local_client else limits.max_connections_per_remote_address
        )
        is_administrator = self._admission is not None and administers(self._admission.principal)
        shares = watch.shares
        if shares.taken >= shares.most:
            detail = f"max_connections is {limits.max_connections}."
        elif not shares.allows_holder(self.holder, is_administrator=is_administrator):
            held = shares.held(self.holder)
            name = self._admission.principal.name if self._admission is not None else self.holder
            text = share_problem(name, held, shares.taken, shares.most, "connections", "max_connections")
            detail = f"{text}."
        elif is_administrator:
            return None
        elif watch.by_address[self._network] > most:
            name = "max_connections_per_local_address" if is_local_client else "max_connections_per_remote_address"
            detail = f"{name} is {most}."
        else:
            return None
        return RequestError(503, "too-many-connections", "Too many connections", detail)

    def _enter_reserve(self, fault: RequestError, now: float) -> None:
        """Put the connection into the reserve: only a health check is served, other requests get this error."""
        watch = self._watch
        self._no_room, self._due = fault, now + RESERVE_TIMEOUT
        self._leave_address()
        watch.reserve[self] = None
        if len(watch.reserve) > RESERVE:
            next(iter(watch.reserve)).leave_reserve()

    def _promote(self, scope: dict[str, Any]) -> bool:
        """Take a connection out of the reserve whose request is an administrator's: there are places for those."""
        fault, watch = self._no_room, self._watch
        if fault is None or fault.status != 503 or self not in watch.reserve:
            return False
        found = watch.check.by_request(scope)
        if found is None or not administers(found.principal):
            return False
        holder = holder_of(found.principal, self._network)
        if not watch.shares.allows_holder(holder, is_administrator=True):
            return False
        self.holder, self._no_room = holder, None
        del watch.reserve[self]
        watch.by_address[self._network] += 1
        watch.shares.enter(holder)
        self._is_counted = True
        return True

    def leave_reserve(self) -> None:
        """Close: newer connections need its place, and a health check would have come by now."""
        del self._watch.reserve[self]
        if self._phase is not REFUSED and self._no_room is not None:
            self._watch.report(self._no_room.reason, self.address, self._no_room.detail)
        self.transport.abort()

    def _leave_address(self) -> None:
        by_address = self._watch.by_address
        by_address[self._network] -= 1
        if not by_address[self._network]:
            del by_address[self._network]

    # ------------------------------------------------------------ time

    def look(self, now: float, passed: float) -> None:
        """Check time-outs. `passed` is the time since the last check."""
        phase = self._phase
        if phase is LENGTH or phase is CHUNKS:
            self._look_at_body(now, passed)
        elif now >= self._due:
            self._time_out()
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent < self._looked or not self._looked:
            self._progress_at = now
        self._looked = unsent
        if unsent != self._unsent:
            self._count_unsent(unsent)
        stalled = now - self._progress_at
        if stalled >= self._limits.body_timeout:
            self._cut("stalled-reader")
        elif stalled >= STALLED and unsent > max(self._limits.max_send_buffer, self._limits.max_payload + MOST_AHEAD):
            self._cut("send-buffer-full")

    def forgive(self, gap: float) -> None:
        """Extend time-outs by a pause of the server (D13)."""
        self._due += gap
        self._body_started += gap
        self._progress_at += gap

    def _look_at_body(self, now: float, passed: float) -> None:
        cycle, limits = self.cycle, self._limits
        if not cycle.response_complete and (self.flow.read_paused or cycle.waiting_for_100_continue):
            self._body_started += passed  # the application makes the client wait
            return
        spent = now - self._body_started
        if spent >= limits.body_timeout:
            self._refuse(
                RequestError(408, "body-timeout", "Body too slow", f"body_timeout is {limits.body_timeout:g} s.")
            )
        elif self._body_received < (spent - limits.body_grace) * limits.min_body_rate:
            detail = f"min_body_rate is {limits.min_body_rate} bytes a second after {limits.body_grace:g} s."
            self._refuse(RequestError(408, "slow-body", "Body too slow", detail))

    def _time_out(self) -> None:
        if self._no_room is not None and self._phase is not REFUSED and (self._is_new or self._phase is HEAD):
            self._refuse(self._no_room)
        elif self._phase is HEAD:
            detail = f"head_timeout is {self._limits.head_timeout:g} s."
            self._refuse(RequestError(408, "head-timeout", "Head too slow", detail))
        elif self._phase is IDLE:
            if self._is_new:
                self._watch.report("silent-connection", self.address, "")
            self._due = inf
            self.transport.close()
        else:
            self.transport.abort()

    def _cut(self, reason: str) -> None:
        self._watch.report(reason, self.address, "")
        self._progress_at = inf
        self.transport.abort()

    def pause_writing(self) -> None:
        """Much waits to be written: an event loop calls this when a response is not taken at once."""
        self._count_unsent(self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        self._progress_at = self.loop.time()
        self._count_unsent(self.transport.get_write_buffer_size())
        super().resume_writing()

    def _count_unsent(self, unsent: int) -> None:
        self._watch.bodies.count_unsent(unsent - self._unsent)
        self._unsent = unsent

    # ------------------------------------------------------------ end

    def connection_lost(self, exc: Exception | None) -> None:
        watch = self._watch
        if self._no_room is None:
            self._leave_address()
            if self._is_counted:
                watch.shares.leave(self.holder)
        watch.reserve.pop(self, None)
        self._phase, self._kept = REFUSED, b""
        watch.bodies.forget(self)
        self._count_unsent(0)
        super().connection_lost(exc)
        self._leave_cycle()
        # The transport of the response may refer to this connection: a reference cycle.
        self._running = self._response = self.cycle = None  # type: ignore[assignment]
        watch.leave()

    def eof_received(self) -> None:
        """Handle the client's EOF as a disconnect: an incomplete response has no reader, and the loop closes."""
        if self._phase is HEAD and self._kept:
            self._watch.report("cut-short", self.address, "")
        self._leave_cycle()

    def _leave_cycle(self) -> None:
        """Tell the running application that the client has disconnected."""
        cycle = self._running
        if cycle is None or cycle.response_complete or self._disconnect.is_gone:
            return
        cycle.disconnected = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        self._disconnect.happen()

    def shutdown(self) -> None:
        """Close after the running response. Incomplete requests are rejected."""
        if self._phase in (LENGTH, CHUNKS) and not self.cycle.response_started:
            self._refuse(STOPPING)
        elif self._phase is REFUSED:
            self._abort_soon()
        else:
            super().shutdown()

    def abort(self) -> None:
        self.transport.abort()

    def _close_gracefully(self) -> None:
        """Close after the response. If a body is still coming, keep reading for a moment."""
        if self._phase is LENGTH or self._phase is CHUNKS:
            self._ignore_input()
            end_writing(self.transport)
        else:
            self.transport.close()

    def _ignore_input(self) -> None:
        self._phase, self._kept, self._due = REFUSED, b"", self.loop.time() + LINGER
        self._watch.bodies.forget(self)
        if self._watch.is_closing:
            self._abort_soon()

    def _abort_soon(self) -> None:
        """Give a rejected client a moment to read the error."""
        self.loop.call_later(LAST_LINGER, self.transport.abort)

    def give_way(self) -> None:
        """Reject the body of this connection, because memory is short."""
        self._refuse(self._watch.bodies.fault())

    def _refuse(self, fault: RequestError) -> None:
        cycle = self._running
        is_answering = cycle is not None and cycle.response_started and not cycle.response_complete
        self._ignore_input()
        self._leave_cycle()
        self._watch.report(fault.reason, self.address, fault.detail)
        if is_answering:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.flow.resume_reading()
            self.transport.write(self._error_response(fault))
            end_writing(self.transport)
        if fault.status == 413:
            self._watch.too_large(cast("dict[str, Any]", self.scope))

    def _error_response(self, fault: RequestError) -> bytes:
        body = problem_body(fault.status, fault.reason, fault.title, fault.detail)
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            NO_STORE,
            *([(b"retry-after", b"1")] if fault.status == 503 else []),
            *([(b"www-authenticate", b"Bearer")] if fault.status == 401 else []),
        ]
        return b"".join((STATUS_LINE[fault.status], self._watch.common_headers, header_lines(headers), b"\r\n", body))
