"""Worker side and client side of PingPong, for any PingPong broker. State machines without I/O."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.dialects import single_frame_calls, single_frame_client
from dragoman.dialects.heartbeats import HeartbeatTimers
from dragoman.dialects.pingpong.codec import read_broker, write_result
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.messages import (
    DISCONNECT,
    NEVER_A_RESULT,
    PING,
    PONG,
    READY,
    Exit,
    Job,
)
from dragoman.dialects.pingpong.options import ClientOptions, WorkerOptions
from dragoman.dialects.sides import ClientIO, Failure, Outcome, WorkerIO

WORKER_SOCKET: Final = "DEALER"


class WorkerSide:
    """The worker's side, across any number of connections."""

    def __init__(self, options: WorkerOptions, io: WorkerIO) -> None:
        self._options = options
        self._io = io
        self._is_open = False
        self._is_leaving = False
        self._job: Job | None = None  # the running job, received on this connection
        self._job_ref = 0  # the number of that job
        self._timers = HeartbeatTimers(options.ping_every, options.broker_timeout * options.n_timeouts)

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    def opened(self, now: float) -> None:
        self._is_open = True
        self._timers.restart(now)
        self._io.send([b"", READY])

    def lost(self) -> None:
        """Drop the job of the ended connection: its result must not be sent on another one (R39)."""
        self._is_open = False
        self._job = None

    def receive(self, message: Message | TooLarge, now: float) -> None:
        self._timers.received_at = now
        if isinstance(message, TooLarge):
            self._io.reconnect(f"a job of {message.size} bytes is over this worker's limit")
            return
        try:
            parsed = read_broker(message, self._options.edition)
        except Malformed as problem:
            is_frontend = message[2:3] == [single_frame_calls.ERROR]
            hint = "; is this where callers connect? workers use the backend" if is_frontend else ""
            self._io.reconnect(f"{problem.reason}: {problem.detail}{hint}")
            return
        if isinstance(parsed, Exit):
            self._io.leave("the broker sent EXIT")
        elif isinstance(parsed, Job) and not self._is_leaving:
            if self._job is not None:
                self._io.reconnect("a second job came during the first")
                return
            self._job = parsed
            self._job_ref += 1
            self._io.run(self._job_ref, parsed.payload)

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None:
        job = self._job
        if job is None or job_ref != self._job_ref:
            return  # from an earlier connection (R39)
        self._job = None
        if self._options.edition is Edition.PLAIN and len(result) <= 5 and bytes(result) in NEVER_A_RESULT:
            self._io.reconnect(f"the result {bytes(result).decode()} is a reserved word, which PingPong cannot carry")
            return
        self._timers.restart(now)
        self._io.send(write_result(result, job.token))
        if self._is_leaving:
            self._send_disconnect()

    def failed(
        self,
        job_ref: Hashable,
        reason: str,
        now: float,
        failure: Failure | None = None,
        outcome: Outcome = Outcome.FAILED,
    ) -> None:
        """Reconnect, so that the broker sees that no result comes: PingPong has no message for a failure."""
        if self._job is not None and job_ref == self._job_ref:
            self._io.reconnect(reason)

    def stop(self) -> None:
        """Announce the departure, directly after the result of a running job so that no new job crosses it."""
        self._is_leaving = True
        if self._job is None and self._is_open:
            self._send_disconnect()

    def _send_disconnect(self) -> None:
        """Send DISCONNECT; edition plain has no such message, and closing the connection suffices."""
        if self._options.edition is Edition.PACKAGE:
            self._io.send([b"", DISCONNECT])

    def tick(self, now: float) -> float:
        """Send PING when it is due; reconnect after too long a silence. Returns the time of the next call."""
        if not self._is_open:
            return now + self._options.ping_every
        if self._job is not None and not self._options.ping_while_busy:
            return now + self._options.ping_every
        timers, is_idle = self._timers, self._job is None
        if is_idle and timers.is_silent(now):
            self._io.reconnect(timers.silence)
            return now + self._options.ping_every
        if timers.is_due(now):
            timers.sent_at = now
            self._io.send([b"", PING])
        return timers.next_due(expects=is_idle)


class ClientSide(single_frame_client.ClientSide):
    def __init__(self, options: ClientOptions, io: ClientIO) -> None:
        super().__init__(io, worker_reply=PONG)
