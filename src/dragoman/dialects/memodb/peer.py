"""The other side of MemoDB: workers and clients that work with any MemoDB broker. Pure, like the session.

Both behave as NNG's REQ sockets with contexts do: a request is outstanding until its answer has come, whatever becomes
of the connection. On a new one it is asked again, under the same request id.
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
ASK_AGAIN: Final = 30.0  # seconds after a job's time is over
LONGEST: Final = 100 * 365 * 86_400.0  # seconds: eight bytes of milliseconds hold it, and nobody waits longer
FRUITLESS: Final = 3  # so many connections that ended with a report unanswered, and the largest is given up
SILENCES: Final = 3  # so many times heartbeat_after without an answer, and we connect anew


def check_services(services: Sequence[str]) -> str | None:
    """Why these names cannot be offered, or None."""
    try:
        read(write_ready(services))
    except Malformed as problem:
        return f"{problem.reason}: {problem.detail}"
    return None


class RequestIds:
    """Rising numbers with the top bit set, as SP wants them. `first` should be anything."""

    def __init__(self, first: int) -> None:
        self._next = first

    def new(self) -> bytes:
        self._next += 1
        return (self._next & 0x7FFF_FFFF | 0x8000_0000).to_bytes(4, "big")


class RequestContext:
    """One worker of several on a connection: it asks, works, and asks again."""

    __slots__ = ("asked", "asked_at", "id", "is_over", "is_unsent_result", "is_working", "losses", "reports", "request")

    def __init__(self) -> None:
        self.id = b""  # what the broker calls us
        self.request = b""
        self.asked: list[Frame] = []  # the request without an answer, if there is one
        self.asked_at = 0.0
        self.is_working = False
        self.reports = False  # that request says what became of a job
        self.losses = 0  # connections on which it was said and that ended without an answer
        self.is_unsent_result = False  # and the broker may not have it, for want of a connection
        self.is_over = False  # it has said goodbye


class WorkerSide:
    """The side of `concurrency` workers that share a connection, for as many connections as it takes."""

    def __init__(
        self,
        options: WorkerOptions,
        port: WorkerIO,
        services: Sequence[str] = (),
        concurrency: int = 1,
        first_request: int = 0,
    ) -> None:
        self._options = options
        self._port = port
        self._ready = write_ready(services or (options.service,))
        self._ids = RequestIds(first_request)
        self._contexts = [RequestContext() for _ in range(concurrency)]
        self._asking: dict[bytes, RequestContext] = {}
        self._is_open = False
        self._is_leaving = False

    @property
    def is_busy(self) -> bool:
        """While we leave, a last RESULT without an answer counts, too: the broker may not have it. So does one that
        waits for a connection."""
        return any(each.is_working or each.is_unsent_result or (each.is_over and each.asked) for each in self._contexts)

    def opened(self, now: float) -> None:
        """Whoever has a request without an answer asks again; whoever has none begins with READY."""
        self._is_open = True
        self._give_up_what_no_connection_survives()
        for context in self._contexts:
            if context.asked:
                context.asked_at = now
                context.is_unsent_result = False
                self._port.send([context.request, *context.asked])
            elif not context.is_working:
                self._begin(context, now)

    def lost(self) -> None:
        """What we work at goes on: it is ours by our id, not by the connection."""
        if self._is_open:
            for context in self._contexts:
                if context.reports:
                    context.losses += 1
        self._is_open = False
        if not self._is_leaving:  # else we have hung up ourselves, once all was said
            for context in self._contexts:
                context.is_unsent_result = context.reports

    def receive(self, message: Message | TooLarge, now: float) -> None:
        assert not isinstance(message, TooLarge)  # SP ends the connection instead
        context = self._asking.pop(bytes(message[0]), None)
        if context is None:
            return  # an answer that came twice
        context.asked = []
        context.reports = False
        context.losses = 0
        try:
            parsed = read(message[1])
        except Malformed as problem:
            self._port.reconnect(f"{problem.reason}: {problem.detail}")
            return
        if isinstance(parsed, messages.Job):
            context.id = parsed.id
            context.is_working = True
            timeout = inf if parsed.timeout < 0 else parsed.timeout / 1000
            self._port.run(context, parsed.payload, JobInfo(service=parsed.service, timeout=timeout))
        elif isinstance(parsed, Heartbeat):
            context.id = parsed.id
            if not self._is_leaving:
                self._ask(context, [write_heartbeat(parsed.id)], now)
        elif isinstance(parsed, Disconnect):
            self._begin(context, now)
        else:
            self._port.reconnect("a RESULT came, which is for callers; or a READY, which is for brokers")

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
        """This wire has no word for failure. A HEARTBEAT where a RESULT is due says that none is coming."""
        assert isinstance(job_ref, RequestContext)
        self._report(job_ref, [write_heartbeat(job_ref.id)], now)

    def stop(self) -> None:
        """Those at work say goodbye with their result. For those that wait the wire has no word."""
        self._is_leaving = True

    def tick(self, now: float) -> float:
        """Give the connection up if the broker owes somebody an answer for too long."""
        patience = SILENCES * self._options.heartbeat_after
        oldest = min((each.asked_at for each in self._contexts if each.asked), default=inf)
        if not self._is_open or oldest == inf:
            return now + patience
        if now >= oldest + patience:
            self._port.reconnect(silence(patience))
            return now + patience
        return oldest + patience

    def _give_up_what_no_connection_survives(self) -> None:
        """A broker hangs up on a message over its max_payload, whose size we do not know. Said again and again, such
        a result would keep everybody here from working for ever."""
        tried = [each for each in self._contexts if each.reports and each.losses >= FRUITLESS]
        if tried:
            largest = max(tried, key=lambda each: sum(map(len, each.asked)))
            for each in tried:
                each.losses = 0
            del self._asking[largest.request]
            largest.request = self._ids.new()
            largest.asked = [write_heartbeat(largest.id)]  # as if it had failed
            self._asking[largest.request] = largest

    def _report(self, context: RequestContext, request: list[Frame], now: float) -> None:
        context.is_working = False
        context.reports = True
        context.losses = 0
        context.is_unsent_result = not self._is_open
        context.is_over = self._is_leaving
        self._ask(context, request, now)

    def _begin(self, context: RequestContext, now: float) -> None:
        context.id = b""
        if not self._is_leaving:
            self._ask(context, [self._ready], now)

    def _ask(self, context: RequestContext, request: list[Frame], now: float) -> None:
        """A new request; it goes out now, or with the next connection."""
        context.request = self._ids.new()
        context.asked = request
        context.asked_at = now
        self._asking[context.request] = context
        if self._is_open:
            self._port.send([context.request, *request])


class _PendingCall:
    __slots__ = ("again_at", "frames", "job_ref", "seconds")

    def __init__(self, job_ref: Hashable, frames: list[Frame], seconds: float, now: float) -> None:
        self.job_ref = job_ref
        self.frames = frames
        self.seconds = seconds  # after so many without an answer it is asked again
        self.again_at = now + seconds


class ClientSide(sides.ClientSide):
    """A client's side: any number of calls in flight, on one connection after another."""

    hint = "this wire has no word for a job that failed, or that no worker took"

    def __init__(self, options: ClientOptions, port: ClientIO, first_request: int = 0) -> None:
        self._options = options
        self._port = port
        self._ids = RequestIds(first_request)
        self._calls: dict[bytes, _PendingCall] = {}
        self.patience = (options.job_timeout or inf) + ASK_AGAIN

    @property
    def outlives_connections(self) -> bool:
        return True

    def opened(self, now: float) -> None:
        for call in self._calls.values():
            call.again_at = now + call.seconds
            self._port.send(call.frames)

    def lost(self) -> None:
        pass

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None:
        seconds = self._options.job_timeout or inf if timeout is None else timeout
        milliseconds = ENDLESS if seconds == inf else max(1, ceil(min(seconds, LONGEST) * 1000))
        request = self._ids.new()
        frames: list[Frame] = [request, write_job(b"", service, milliseconds), payload]
        self._calls[request] = _PendingCall(job_ref, frames, seconds + ASK_AGAIN, now)
        self._port.send(frames)

    def receive(self, message: Message | TooLarge, now: float) -> None:
        assert not isinstance(message, TooLarge)
        call = self._calls.pop(bytes(message[0]), None)
        if call is None:
            return  # an answer that came twice
        parsed = read(message[1])
        if not isinstance(parsed, Result):
            raise Malformed("not an answer", f"{type(parsed).__name__.upper()} came where a RESULT is due")
        self._port.answered(call.job_ref, parsed.payload)

    def tick(self, now: float) -> float:
        """Ask again for what has gone without an answer for too long."""
        due = inf
        for call in self._calls.values():
            if call.again_at <= now:
                call.again_at = now + call.seconds
                self._port.send(call.frames)
            due = min(due, call.again_at)
        return due

    def forget(self, job_ref: Hashable, id: bytes, now: float) -> None:
        """It is not asked for again. The wire has no word for more."""
        for request, call in self._calls.items():
            if call.job_ref == job_ref:
                del self._calls[request]
                return
