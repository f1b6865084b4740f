"""The broker's side of PingPong: workers on the backend, callers on the frontend. Rules R30 to R50.

In edition `plain` only the order of messages on a connection ties a result to its job, so the attempt that a worker
holds decides (`RemoteWorker.attempt`). Other messages of workers are in `remote_workers.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core import recipients
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt
from dragoman.core.oversize import over_max_payload
from dragoman.core.recording import from_worker, to_worker
from dragoman.dialects.frontend import Frontend
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.dialects.listener_profile import default_job_options
from dragoman.dialects.pingpong.codec import read_worker, write_job
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.messages import RESERVED, Disconnect, Result, WorkerMessage
from dragoman.dialects.pingpong.options import ListenerOptions
from dragoman.dialects.pingpong.remote_workers import PONG_FRAMES, RemoteWorker, RemoteWorkers
from dragoman.dialects.routing_ids import RoutingIds

BACKEND: Final = "backend"
LONGEST_RESERVED: Final = max(map(len, RESERVED))


class PingPongBrokerSide(BrokerSide):
    dialect = "pingpong"

    def __init__(
        self, broker: Broker, io: BrokerIO, options: ListenerOptions, max_payload: int, started: float
    ) -> None:
        self._broker = broker
        self._io = io
        self._edition = options.edition
        job_options = replace(default_job_options(options), queue_timeout=options.queue_timeout)  # 0: no queueing
        self._max_payload = max_payload
        self._frontend = Frontend(broker, io, options.service, job_options, max_payload)
        self.remote_workers = RemoteWorkers(self, broker, io, options, max_payload, started)
        self.routing_ids = RoutingIds(broker, io, self.remote_workers.supersede)

    # ---------------------------------------------------------------- calls from the runner

    def opened(self, peer: Connection, now: float) -> None:
        if self.routing_ids.take(peer, now) and peer.socket_name == BACKEND:
            name = peer.identity.decode("utf-8", "backslashreplace") if peer.identity else peer.label
            peer.remote = RemoteWorker(peer, name)

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        remote = peer.remote
        try:
            if remote is None:
                self._frontend.receive(peer, message, now)
            elif type(message) is TooLarge:
                self.remote_workers.receive_large(remote, message, now)
            else:
                self._receive_worker(remote, read_worker(message, self._edition), now)
        except Malformed as problem:
            self._io.bad_message(peer, problem.reason, problem.detail)

    def unsent(self, remote: recipients.RemoteWorker) -> int:
        return self._io.unsent(cast(RemoteWorker, remote).peer)

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._give(effect.attempt, now)
        elif type(effect) is DeliverOutcome:
            self._frontend.answer(effect, now)
        elif type(effect) is RemoveWorker:
            self.remote_workers.remove(effect, now)
        # CancelAttempt: PingPong has no message for it. Acknowledge: its callers cannot submit background jobs.

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        self.routing_ids.release(peer)
        remote = peer.remote
        if remote is None:
            self._frontend.lost(peer, now)
        else:
            unseen = [tag for tag in unsent if isinstance(tag, Attempt)]
            self.remote_workers.leave(remote, "its worker's connection ended", now, unseen)

    def tick(self, now: float) -> float:
        return inf

    # ---------------------------------------------------------------- messages of workers

    def _receive_worker(self, remote: RemoteWorker, parsed: WorkerMessage, now: float) -> None:
        if type(parsed) is Result:
            self._result(remote, parsed, now)
        elif type(parsed) is Disconnect and self._edition is Edition.PLAIN and remote.attempt is not None:
            self._result(remote, Result(b"DISCONNECT"), now)
        else:
            self.remote_workers.receive(remote, parsed, now)

    def _result(self, remote: RemoteWorker, result: Result, now: float) -> None:
        attempt = remote.attempt
        is_current = attempt is not None and (result.token is None or result.token == attempt.token)
        if attempt is None or not is_current:  # R37: no result is due, or it is of an earlier attempt
            self._broker.counters.late_results += 1
            self.remote_workers.log_late(remote)
            if remote.worker is not None:
                self._broker.seen(remote.worker, now)
        else:
            if attempt.job.conversation is not None:
                from_worker(attempt, "result" if result.token is None else "JOB COMPLETE", len(result.payload), now)
            size = len(result.payload)
            if size > self._max_payload:
                self._broker.fail(attempt, over_max_payload("its result", size, self._max_payload), now)
            elif not self._broker.succeed(attempt, result.payload, now):
                self.remote_workers.log_late(remote, job=attempt.job.id.hex())
            if attempt.worker.running:
                return  # its next job is sent in this iteration and replaces PONG
        self._io.send(remote.peer, PONG_FRAMES)

    # ---------------------------------------------------------------- jobs

    def _give(self, attempt: Attempt, now: float) -> None:
        remote = cast(RemoteWorker, attempt.worker.remote)
        payload = attempt.job.payload
        if self._edition is Edition.PLAIN:
            if len(payload) <= LONGEST_RESERVED and payload in RESERVED:  # R45
                self._broker.attempts.reject(
                    attempt, f"reserved word: PingPong cannot carry {bytes(payload).decode()}", now
                )
                return
            frames: list[Frame] = [b"", payload]
        else:
            frames = write_job(payload, attempt.token)
        if attempt.job.conversation is not None:
            to_worker(attempt, "job", len(payload), now)
        remote.quiet_since = now
        remote.fell_silent = False
        self._io.send(remote.peer, frames, attempt)
