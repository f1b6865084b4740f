"""Worker side and client side of MemoDB, for any MemoDB broker. State machines without I/O.

Both behave like NNG's REQ sockets with contexts: a request is outstanding until its reply has come, and is repeated on
a new connection under the same request id.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil
from typing import Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.infinity import inf
from dragoman.dialects import sides
from dragoman.dialects.heartbeats import silence
from dragoman.dialects.memodb import messages
from dragoman.dialects.memodb.codec import read, write_heartbeat, write_job, write_ready, write_result
from dragoman.dialects.memodb.messages import Disconnect, Heartbeat, Result
from dragoman.dialects.memodb.options import ClientOptions, WorkerOptions
from dragoman.dialects.sides import ClientIO, Failure, JobInfo, Outcome, WorkerIO

SOCKET: Final = "REQ"
ENDLESS: Final = -1
ASK_AGAIN: Final = 30.0  # seconds after a job's time limit until the call is repeated
LONGEST: Final = 100 * 365 * 86_400.0  # seconds: fits in eight bytes of milliseconds, and no caller waits longer
MAX_LOSSES: Final = 3  # lost connections without a reply to a result after which the largest result is dropped
SILENCES: Final = 3  # multiples of heartbeat_after without a reply after which the worker reconnects


def check_services(services: Sequence[str]) -> str | None:
    """Return an error message if these services cannot be offered, else None."""
    try:
        read(write_ready(services))
    except Malformed as problem:
        return f"{problem.reason}: {problem.detail}"
    return None


class RequestIds:
    """Ascending numbers with the top bit set, as SP requires. `first` is arbitrary."""

    def __init__(self, first: int) -> None:
        self._next = first

    def new(self) -> bytes:
        self._next += 1
        return (self._next & 0x7FFF_FFFF | 0x8000_0000).to_bytes(4, "big")


class RequestContext:
    """One of the workers that share a connection: it sends a request, works, and sends the next request."""

    __slots__ = (
        "id",
        "is_over",
        "is_unsent_result",
        "is_working",
        "losses",
        "pending",
        "reports",
        "request",
        "sent_at",
    )

    def __init__(self) -> None:
        self.id = b""  # the broker's id for this worker
        self.request = b""
        self.pending: list[Frame] = []  # the request without a reply, if any
        self.sent_at = 0.0
        self.is_working = False
        self.reports = False  # that request reports the end of a job
        self.losses = 0  # connections that ended without a reply to it
        self.is_unsent_result = False  # it could not be sent, because there is no connection
        self.is_over = False  # its last request has been made


class WorkerSide:
    """The side of `concurrency` workers that share a connection, across any number of connections."""

    def __init__(
        self,
        options: WorkerOptions,
        io: WorkerIO,
        services: Sequence[str] = (),
        concurrency: int = 1,
        first_request: int = 0,
    ) -> None:
        self._options = options
        self._io = io
        self._ready = write_ready(services or (options.service,))
        self._ids = RequestIds(first_request)
        self._contexts = [RequestContext() for _ in range(concurrency)]
        self._pending: dict[bytes, RequestContext] = {}
        self._is_open = False
        self._is_leaving = False

    @property
    def is_busy(self) -> bool:
        """Tell if a job is running or its result is not delivered: unsent, or the last one without a reply. The broker
        may not have it."""
        return any(
            each.is_working or each.is_unsent_result or (each.is_over and each.pending) for each in self._contexts
        )

    def opened(self, now: float) -> None:
        """Repeat outstanding requests; workers without one begin with READY."""
        self._is_open = True
        self._drop_oversized_result()
        for context in self._contexts:
            if context.pending:
                context.sent_at = now
                context.is_unsent_result = False
                self._io.send([context.request, *context.pending])
            elif not context.is_working:
                self._send_ready(context, now)

    def lost(self) -> None:
        """Keep running jobs: they belong to the worker's id, not to the connection."""
        if self._is_open:
            for context in self._contexts:
                if context.reports:
                    context.losses += 1
        self._is_open = False
        if not self._is_leaving:  # otherwise this worker has closed it after everything was sent
            for context in self._contexts:
                context.is_unsent_result = context.reports

    def receive(self, message: Message | TooLarge, now: float) -> None:
        assert not isinstance(message, TooLarge)  # SP ends the connection instead
        context = self._pending.pop(bytes(message[0]), None)
        if context is None:
            return  # a repeated reply
        context.pending = []
        context.reports = False
        context.losses = 0
        try:
            parsed = read(message[1])
        except Malformed as problem:
            self._io.reconnect(f"{problem.reason}: {problem.detail}")
            return
        if isinstance(parsed, messages.Job):
            context.id = parsed.id
            context.is_working = True
            timeout = inf if parsed.timeout < 0 else parsed.timeout / 1000
            self._io.run(context, parsed.payload, JobInfo(service=parsed.service, timeout=timeout))
        elif isinstance(parsed, Heartbeat):
            context.id = parsed.id
            if not self._is_leaving:
                self._request(context, [write_heartbeat(parsed.id)], now)
        elif isinstance(parsed, Disconnect):
            self._send_ready(context, now)
        else:
            self._io.reconnect("a RESULT or READY came; JOB, HEARTBEAT and DISCONNECT are allowed")

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None:
        assert isinstance(job_ref, RequestContext)
        self._report(job_ref, [write_result(job_ref.id, self._is_leaving), result], now)

    def failed(
        self,
        job_ref: Hashable,
        reason: str,
        now: float,
        failure: Failure | None = None,
        outcome: Outcome = Outcome.FAILED,
    ) -> None:
        """Send HEARTBEAT instead of RESULT, which tells the broker that none comes: MemoDB has no failure message."""
        assert isinstance(job_ref, RequestContext)
        self._report(job_ref, [write_heartbeat(job_ref.id)], now)

    def stop(self) -> None:
        """Leave: busy workers send a flag with their result. MemoDB has no such message for waiting ones."""
        self._is_leaving = True

    def tick(self, now: float) -> float:
        """Reconnect if a request has been without a reply for too long. Returns the time of the next call."""
        timeout = SILENCES * self._options.heartbeat_after
        oldest = min((each.sent_at for each in self._contexts if each.pending), default=inf)
        if not self._is_open or oldest == inf:
            return now + timeout
        if now >= oldest + timeout:
            self._io.reconnect(silence(timeout))
            return now + timeout
        return oldest + timeout

    def _drop_oversized_result(self) -> None:
        """Drop the largest result after several lost connections. A broker disconnects on a message over its
        max_payload, which is unknown here. Repeated forever, such a result would block all workers."""
        tried = [each for each in self._contexts if each.reports and each.losses >= MAX_LOSSES]
        if tried:
            largest = max(tried, key=lambda each: sum(map(len, each.pending)))
            for each in tried:
                each.losses = 0
            del self._pending[largest.request]
            largest.request = self._ids.new()
            largest.pending = [write_heartbeat(largest.id)]  # as if the job had failed
            self._pending[largest.request] = largest

    def _report(self, context: RequestContext, request: list[Frame], now: float) -> None:
        context.is_working = False
        context.reports = True
        context.losses = 0
        context.is_unsent_result = not self._is_open
        context.is_over = self._is_leaving
        self._request(context, request, now)

    def _send_ready(self, context: RequestContext, now: float) -> None:
        context.id = b""
        if not self._is_leaving:
            self._request(context, [self._ready], now)

    def _request(self, context: RequestContext, request: list[Frame], now: float) -> None:
        """Make a new request. It is sent now, or on the next connection."""
        context.request = self._ids.new()
        context.pending = request
        context.sent_at = now
        self._pending[context.request] = context
        if self._is_open:
            self._io.send([context.request, *request])


class _PendingCall:
    """A call without a reply."""

    __slots__ = ("again_at", "frames", "job_ref", "seconds")

    def __init__(self, job_ref: Hashable, frames: list[Frame], seconds: float, now: float) -> None:
        self.job_ref = job_ref
        self.frames = frames
        self.seconds = seconds  # without a reply after this time, the call is repeated
        self.again_at = now + seconds


class ClientSide(sides.ClientSide):
    """The client's side: any number of calls in progress, on one connection after another."""

    hint = "MemoDB has no message for a job that failed, was refused, or found no worker"

    def __init__(self, options: ClientOptions, io: ClientIO, first_request: int = 0) -> None:
        self._options = options
        self._io = io
        self._ids = RequestIds(first_request)
        self._calls: dict[bytes, _PendingCall] = {}
        self.patience = (options.job_timeout or inf) + ASK_AGAIN

    @property
    def outlives_connections(self) -> bool:
        return True

    def opened(self, now: float) -> None:
        for call in self._calls.values():
            call.again_at = now + call.seconds
            self._io.send(call.frames)

    def lost(self) -> None:
        pass

    def moved(self) -> None:
        """Abandon all calls: another broker would take them for new ones."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            self._io.abandoned(call.job_ref, "the connection to the broker ended; the job may have run")

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None:
        seconds = self._options.job_timeout or inf if timeout is None else timeout
        milliseconds = ENDLESS if seconds == inf else max(1, ceil(min(seconds, LONGEST) * 1000))
        request = self._ids.new()
        frames: list[Frame] = [request, write_job(b"", service, milliseconds), payload]
        self._calls[request] = _PendingCall(job_ref, frames, seconds + ASK_AGAIN, now)
        self._io.send(frames)

    def receive(self, message: Message | TooLarge, now: float) -> None:
        assert not isinstance(message, TooLarge)
        call = self._calls.pop(bytes(message[0]), None)
        if call is None:
            return  # a repeated reply
        parsed = read(message[1])
        if not isinstance(parsed, Result):
            raise Malformed("not an answer", f"{type(parsed).__name__.upper()} came instead of RESULT")
        self._io.answered(call.job_ref, parsed.payload)

    def tick(self, now: float) -> float:
        """Repeat calls that have been without a reply for too long. Returns the time of the next call."""
        due = inf
        for call in self._calls.values():
            if call.again_at <= now:
                call.again_at = now + call.seconds
                self._io.send(call.frames)
            due = min(due, call.again_at)
        return due

    def forget(self, job_ref: Hashable, id: bytes, now: float) -> None:
        """Stop repeating the call. MemoDB has no message to cancel it."""
        for request, call in self._calls.items():
            if call.job_ref == job_ref:
                del self._calls[request]
                return
