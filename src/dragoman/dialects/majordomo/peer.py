"""The other side of Majordomo: a worker and a client that work with any Majordomo broker. Pure, like the session."""

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
    """Why these names cannot be offered, or None."""
    if len(services) > 1:
        return f"a Majordomo worker offers one service, not {len(services)}: start one worker for each"
    for service in services:
        if not is_name(service, MAX_SERVICE_BYTES):
            return f"bad service name: 1 to {MAX_SERVICE_BYTES} bytes of UTF-8 without control characters"
    return None


class WorkerSide:
    """One worker's side of the conversation, for as many connections as it takes."""

    def __init__(self, options: WorkerOptions, port: WorkerIO, service: str) -> None:
        self._port = port
        self._wire = WIRES[options.edition]
        self._service = service
        self._heartbeat = options.heartbeat
        self._is_open = False
        self._is_leaving = False
        self._job: WorkerRequest | None = None  # what we work at, on this connection
        self._job_ref = 0  # the number of that job
        self._signs = HeartbeatTimers(options.heartbeat, options.heartbeat * options.liveness)

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    def opened(self, now: float) -> None:
        self._is_open = True
        self._signs.begin(now)
        self._port.send(write_ready(self._wire, self._service))

    def lost(self) -> None:
        """The connection ended. What we work at belongs to it: its result will never be sent on another."""
        self._is_open = False
        self._job = None

    def receive(self, message: Message | TooLarge, now: float) -> None:
        self._signs.heard = now
        if isinstance(message, TooLarge):
            self._port.reconnect(f"a job of {message.size} bytes is over what we take")
            return
        try:
            parsed = read_broker(message, self._wire)
        except Malformed as problem:
            self._port.reconnect(f"{problem.reason}: {problem.detail}")
            return
        if self._is_leaving and self._job is None:
            return  # we have said DISCONNECT
        if isinstance(parsed, Disconnect):
            self._port.reconnect("the broker said DISCONNECT")
        elif isinstance(parsed, WorkerRequest):
            if self._job is not None:
                self._port.reconnect("a second job came while we worked at the first")
                return
            self._job = parsed
            self._job_ref += 1
            self._port.run(self._job_ref, parsed.body, JobInfo(service=self._service))

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None:
        job = self._job
        if job is None or job_ref != self._job_ref:
            return  # taken on an earlier connection
        self._job = None
        self._signs.begin(now)
        self._port.send(write_worker_reply(self._wire, job.client, result))
        if self._is_leaving:
            self._port.send(write_disconnect(self._wire))

    def failed(
        self,
        job_ref: Hashable,
        reason: str,
        now: float,
        failure: Failure | None = None,
        outcome: Outcome = Outcome.FAILED,
    ) -> None:
        """This wire has no word for failure: leave and come back, so that the broker sees the job is not coming."""
        if self._job is not None and job_ref == self._job_ref:
            self._port.send(write_disconnect(self._wire))
            self._port.reconnect(reason)

    def stop(self) -> None:
        """Say goodbye, right behind the result if there is a job in hand, so that no new one crosses it."""
        self._is_leaving = True
        if self._job is None and self._is_open:
            self._port.send(write_disconnect(self._wire))

    def tick(self, now: float) -> float:
        """Give signs of life, also while we work; give the connection up after too much silence.

        Only while we are idle, for brokers like the Guide's say nothing to workers that are at work.
        """
        if not self._is_open or (self._is_leaving and self._job is None):
            return now + self._heartbeat
        signs, is_idle = self._signs, self._job is None
        if is_idle and signs.is_silent(now):
            self._port.reconnect(signs.silence)
            return now + self._heartbeat
        if signs.is_due(now):
            signs.said = now
            self._port.send(write_heartbeat(self._wire))
        return signs.next_due(expects=is_idle)


class ClientSide(sides.ClientSide):
    """A client's side: one call at a time on one connection, for replies name nothing but the service."""

    hint = "this wire has no word for a job that failed, or that no worker took"

    def __init__(self, options: ClientOptions, port: ClientIO) -> None:
        self._port = port
        self._wire = WIRES[options.edition]
        self.patience = options.reply_timeout
        self._job_ref: Hashable = None
        self._service = ""

    def opened(self, now: float) -> None:
        pass

    def lost(self) -> None:
        pass

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None:
        assert self._job_ref is None, "this wire carries one call at a time"
        self._job_ref = job_ref
        self._service = service
        self._port.send(write_client_request(self._wire, service, payload))

    def receive(self, message: Message | TooLarge, now: float) -> None:
        if isinstance(message, TooLarge):
            raise sides.answer_too_large(message)
        reply = read_reply(message, self._wire)
        if self._job_ref is None:
            return
        if reply.service not in (None, self._service):
            raise Malformed("another service", "the answer is one to a call for another service")
        if reply.is_final:
            job_ref, self._job_ref = self._job_ref, None
            self._port.answered(job_ref, reply.body)
        else:
            self._port.reported(self._job_ref, reply.body, is_part=True, attempt=1)  # which it is, this wire cannot say

    def forget(self, job_ref: Hashable, id: bytes, now: float) -> None:
        """Its reply would be taken for the next call's: only another connection can help."""
        if self._job_ref == job_ref:
            self._job_ref = None
            self._port.reconnect("its caller does not wait any longer")

    def tick(self, now: float) -> float:
        return inf
