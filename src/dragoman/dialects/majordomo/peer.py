"""Worker side and client side of Majordomo, for any Majordomo broker. State machines without I/O."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.infinity import inf
from dragoman.core.names import is_name
from dragoman.dialects import sides
from dragoman.dialects.heartbeats import HeartbeatTimers
from dragoman.dialects.majordomo.codec import (
    MAX_SERVICE_BYTES,
    read_broker,
    read_reply,
    write_client_request,
    write_disconnect,
    write_heartbeat,
    write_ready,
    write_worker_reply,
)
from dragoman.dialects.majordomo.editions import WIRES
from dragoman.dialects.majordomo.messages import Disconnect, WorkerRequest
from dragoman.dialects.majordomo.options import ClientOptions, WorkerOptions
from dragoman.dialects.sides import ClientIO, Failure, JobInfo, Outcome, WorkerIO

SOCKET: Final = "DEALER"


def check_services(services: Sequence[str]) -> str | None:
    """Return an error message if these services cannot be offered, else None."""
    if len(services) > 1:
        return f"a Majordomo worker offers one service, not {len(services)}: start one worker for each"
    for service in services:
        if not is_name(service, MAX_SERVICE_BYTES):
            return f"bad service name: 1 to {MAX_SERVICE_BYTES} bytes of visible UTF-8 text"
    return None


class WorkerSide:
    """The worker's side, across any number of connections."""

    def __init__(self, options: WorkerOptions, io: WorkerIO, service: str) -> None:
        self._io = io
        self._wire = WIRES[options.edition]
        self._service = service
        self._heartbeat = options.heartbeat
        self._is_open = False
        self._is_leaving = False
        self._job: WorkerRequest | None = None  # the running job, received on this connection
        self._job_ref = 0  # the number of that job
        self._timers = HeartbeatTimers(options.heartbeat, options.heartbeat * options.liveness)

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    def opened(self, now: float) -> None:
        self._is_open = True
        self._timers.restart(now)
        self._io.send(write_ready(self._wire, self._service))

    def lost(self) -> None:
        """Drop the job of the ended connection: its result must not be sent on another one."""
        self._is_open = False
        self._job = None

    def receive(self, message: Message | TooLarge, now: float) -> None:
        self._timers.received_at = now
        if isinstance(message, TooLarge):
            self._io.reconnect(f"a job of {message.size} bytes is over this worker's limit")
            return
        try:
            parsed = read_broker(message, self._wire)
        except Malformed as problem:
            self._io.reconnect(f"{problem.reason}: {problem.detail}")
            return
        if self._is_leaving and self._job is None:
            return  # DISCONNECT has been sent
        if isinstance(parsed, Disconnect):
            self._io.reconnect("the broker sent DISCONNECT")
        elif isinstance(parsed, WorkerRequest):
            if self._job is not None:
                self._io.reconnect("a second job came during the first")
                return
            self._job = parsed
            self._job_ref += 1
            self._io.run(self._job_ref, parsed.body, JobInfo(service=self._service))

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None:
        job = self._job
        if job is None or job_ref != self._job_ref:
            return  # from an earlier connection
        self._job = None
        self._timers.restart(now)
        self._io.send(write_worker_reply(self._wire, job.client, result))
        if self._is_leaving:
            self._io.send(write_disconnect(self._wire))

    def failed(
        self,
        job_ref: Hashable,
        reason: str,
        now: float,
        failure: Failure | None = None,
        outcome: Outcome = Outcome.FAILED,
    ) -> None:
        """Disconnect and reconnect, so that the broker sees that no result comes: Majordomo has no failure message."""
        if self._job is not None and job_ref == self._job_ref:
            self._io.send(write_disconnect(self._wire))
            self._io.reconnect(reason)

    def stop(self) -> None:
        """Send DISCONNECT, directly after the result of a running job so that no new job crosses it."""
        self._is_leaving = True
        if self._job is None and self._is_open:
            self._io.send(write_disconnect(self._wire))

    def tick(self, now: float) -> float:
        """Send heartbeats, also during a job; reconnect after too long a silence.

        Silence counts only while idle: brokers like the Guide's send nothing to busy workers.
        """
        if not self._is_open or (self._is_leaving and self._job is None):
            return now + self._heartbeat
        timers, is_idle = self._timers, self._job is None
        if is_idle and timers.is_silent(now):
            self._io.reconnect(timers.silence)
            return now + self._heartbeat
        if timers.is_due(now):
            timers.sent_at = now
            self._io.send(write_heartbeat(self._wire))
        return timers.next_due(expects=is_idle)


class ClientSide(sides.ClientSide):
    """The client's side: one call at a time on one connection, because replies name only the service."""

    hint = "Majordomo has no message for a job that failed, was refused, or found no worker"

    def __init__(self, options: ClientOptions, io: ClientIO) -> None:
        self._io = io
        self._wire = WIRES[options.edition]
        self.patience = options.reply_timeout
        self._job_ref: Hashable = None
        self._service = ""

    def opened(self, now: float) -> None:
        pass

    def lost(self) -> None:
        pass

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None:
        assert self._job_ref is None, "a connection carries one call at a time"
        self._job_ref = job_ref
        self._service = service
        self._io.send(write_client_request(self._wire, service, payload))

    def receive(self, message: Message | TooLarge, now: float) -> None:
        if isinstance(message, TooLarge):
            raise sides.response_too_large(message)
        reply = read_reply(message, self._wire)
        if self._job_ref is None:
            return
        if reply.service not in (None, self._service):
            raise Malformed("another service", "the reply belongs to a call for another service")
        if reply.is_final:
            job_ref, self._job_ref = self._job_ref, None
            self._io.answered(job_ref, reply.body)
        else:
            self._io.reported(self._job_ref, reply.body, is_part=True, attempt=1)  # Majordomo does not tell which

    def forget(self, job_ref: Hashable, id: bytes, now: float) -> None:
        """Reconnect: the late reply would be taken for that of the next call."""
        if self._job_ref == job_ref:
            self._job_ref = None
            self._io.reconnect("the caller stopped waiting")

    def tick(self, now: float) -> float:
        return inf
