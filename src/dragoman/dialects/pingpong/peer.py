"""The other side of PingPong: a worker and a client that work with any PingPong broker. Pure, like the session."""

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
    """One worker's side of the conversation, for as many connections as it takes."""

    def __init__(self, options: WorkerOptions, port: WorkerIO) -> None:
        self._options = options
        self._port = port
        self._is_open = False
        self._is_leaving = False
        self._job: Job | None = None  # what we work at, on this connection
        self._job_ref = 0  # the number of that job
        self._signs = HeartbeatTimers(options.ping_every, options.broker_timeout * options.n_timeouts)

    @property
    def is_busy(self) -> bool:
        return self._job is not None

    def opened(self, now: float) -> None:
        self._is_open = True
        self._signs.begin(now)
        self._port.send([b"", READY])

    def lost(self) -> None:
        """The connection ended. What we work at belongs to it: its result will never be sent on another (R39)."""
        self._is_open = False
        self._job = None

    def receive(self, message: Message | TooLarge, now: float) -> None:
        self._signs.heard = now
        if isinstance(message, TooLarge):
            self._port.reconnect(f"a job of {message.size} bytes is over what we take")
            return
        try:
            parsed = read_broker(message, self._options.edition)
        except Malformed as problem:
            is_frontend = message[2:3] == [single_frame_calls.ERROR]
            hint = "; is this where callers connect? workers use the backend" if is_frontend else ""
            self._port.reconnect(f"{problem.reason}: {problem.detail}{hint}")
            return
        if isinstance(parsed, Exit):
            self._port.leave("the broker said EXIT")
        elif isinstance(parsed, Job) and not self._is_leaving:
            if self._job is not None:
                self._port.reconnect("a second job came while we worked at the first")
                return
            self._job = parsed
            self._job_ref += 1
            self._port.run(self._job_ref, parsed.payload)

    def finished(self, job_ref: Hashable, result: Frame, now: float) -> None:
        job = self._job
        if job is None or job_ref != self._job_ref:
            return  # taken on an earlier connection (R39)
        self._job = None
        if self._options.edition is Edition.PLAIN and len(result) <= 5 and bytes(result) in NEVER_A_RESULT:
            self._port.reconnect(f"the result is the word {bytes(result).decode()}, which this wire cannot carry")
            return
        self._signs.begin(now)
        self._port.send(write_result(result, job.token))
        if self._is_leaving:
            self._say_goodbye()

    def failed(
        self,
        job_ref: Hashable,
        reason: str,
        now: float,
        failure: Failure | None = None,
        outcome: Outcome = Outcome.FAILED,
    ) -> None:
        """This wire has no word for failure: close and come back, so that the broker sees the job is not coming."""
        if self._job is not None and job_ref == self._job_ref:
            self._port.reconnect(reason)

    def stop(self) -> None:
        """Say goodbye, right behind the result if there is a job in hand, so that no new one crosses it."""
        self._is_leaving = True
        if self._job is None and self._is_open:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        """Edition plain has no word for it: closing says it."""
        if self._options.edition is Edition.PACKAGE:
            self._port.send([b"", DISCONNECT])

    def tick(self, now: float) -> float:
        """Ping when it is time; give the connection up after too much silence. Returns when to come again."""
        if not self._is_open:
            return now + self._options.ping_every
        if self._job is not None and not self._options.ping_while_busy:
            return now + self._options.ping_every
        signs, is_idle = self._signs, self._job is None
        if is_idle and signs.is_silent(now):
            self._port.reconnect(signs.silence)
            return now + self._options.ping_every
        if signs.is_due(now):
            signs.said = now
            self._port.send([b"", PING])
        return signs.next_due(expects=is_idle)


class ClientSide(single_frame_client.ClientSide):
    def __init__(self, options: ClientOptions, port: ClientIO) -> None:
        super().__init__(port, worker_word=PONG)
