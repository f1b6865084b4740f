"""The broker's view of PingPong workers: joining, PING, repeated READY, and leaving.

Jobs and results are in `broker_side.py`. Rules R30 to R38, R46 and R49.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, cast

from dragoman.carriers.carrier import Frame, TooLarge
from dragoman.core import recipients
from dragoman.core.admission import join_refusal
from dragoman.core.broker import Broker
from dragoman.core.effects import RemoveWorker
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Worker
from dragoman.core.oversize import over_max_payload
from dragoman.core.recipients import Recipient
from dragoman.core.recording import from_worker, record_heartbeat
from dragoman.core.states import RefusalReason
from dragoman.dialects.interface import BrokerIO, Connection
from dragoman.dialects.listener_profile import silent_worker
from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.messages import EXIT, PONG, Disconnect, Ping, Ready, WorkerMessage
from dragoman.dialects.pingpong.options import ListenerOptions
from dragoman.dialects.routing_ids import RECONNECTED

CROSSING: Final = 1.0  # seconds; R34: a READY this soon after the job may have crossed it
PONG_EVERY: Final = 0.02  # seconds, R49
EXITS: Final = 3  # times that EXIT is sent, R46
EXIT_EVERY: Final = 0.9  # seconds, about the interval of pings
PONG_FRAMES: Final[list[Frame]] = [b"", PONG]
EXIT_FRAMES: Final[list[Frame]] = [b"", EXIT]


class RemoteWorker(recipients.RemoteWorker):
    """A worker's connection, and the core's worker for it."""

    __slots__ = (
        "count",
        "exited",
        "exits",
        "fell_silent",
        "is_exiting",
        "name",
        "peer",
        "ponged",
        "quiet_since",
        "worker",
    )

    def __init__(self, peer: Connection, name: str) -> None:
        self.peer = peer
        self.name = name
        self.worker: Worker | None = None
        self.quiet_since = -inf  # time of its last message since it got the job, or of the job
        self.fell_silent = False  # R36: it sent nothing for a while after it got the job, so it is not threaded
        self.ponged = -inf
        self.count = -1
        self.is_exiting = False
        self.exits = 0
        self.exited = -inf

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that was sent and has no result yet, current or not."""
        return self.worker.held() if self.worker is not None else None


class RemoteWorkers:
    """The workers of one listener. `recipient` receives the effects that concern them."""

    def __init__(
        self,
        recipient: Recipient,
        broker: Broker,
        io: BrokerIO,
        options: ListenerOptions,
        max_payload: int,
        started: float,
    ) -> None:
        self._recipient = recipient
        self._broker = broker
        self._io = io
        self._options = options
        self._max_payload = max_payload
        self._profile = silent_worker(options, options.worker_expire)
        # R38: a threaded worker from before a restart of the broker may still run an old job when it pings.
        self._trust_after = started + (options.job_timeout or self._profile.stuck_timeout)

    def receive(self, remote: RemoteWorker, parsed: WorkerMessage, now: float) -> None:
        """Handle a message that is not a result."""
        self._record_silence(remote, now)
        if type(parsed) is Ping:
            self._ping(remote, parsed, now)
        elif type(parsed) is Ready:
            self._ready(remote, now)
        elif type(parsed) is Disconnect:
            self.leave(remote, "its worker sent DISCONNECT", now)
        elif remote.worker is not None:  # PONG, EXIT: never a result, but a heartbeat
            self._broker.seen(remote.worker, now)

    def receive_large(self, remote: RemoteWorker, message: TooLarge, now: float) -> None:
        """Fail the job of a result over the limit, which the carrier has dropped. The worker is free."""
        attempt = remote.attempt
        problem = message.malformed()
        self._io.bad_message(remote.peer, problem.reason, problem.detail)
        token = message.frames[2:3] if self._options.edition is Edition.PACKAGE else []
        if attempt is not None and token and token != [attempt.token]:
            self._broker.counters.late_results += 1  # of an earlier attempt
        elif attempt is not None:
            from_worker(attempt, "JOB COMPLETE" if token else "result", message.size, now)
            self._broker.fail(attempt, over_max_payload("its result", message.size, self._max_payload), now)
        self._io.send(remote.peer, PONG_FRAMES)

    def log_late(self, remote: RemoteWorker, job: str = "") -> None:
        self._io.remark_limited("late result", peer=remote.peer, worker=remote.name, job=job)

    def supersede(self, former: Connection, now: float) -> None:
        """Remove the worker of a connection whose routing id another one has taken."""
        if isinstance(former.remote, RemoteWorker):
            self.leave(former.remote, RECONNECTED, now)

    def leave(self, remote: RemoteWorker, reason: str, now: float, unseen: Sequence[Attempt] = ()) -> None:
        worker, remote.worker = remote.worker, None
        if worker is not None:
            self._broker.leave(worker, now, reason, unseen)

    def remove(self, effect: RemoveWorker, now: float) -> None:
        remote = cast(RemoteWorker, effect.worker.remote)
        if remote.worker is not effect.worker:
            return  # it has joined again since
        was_stuck = remote.attempt is not None
        remote.worker = None
        if effect.farewell.is_final:
            remote.is_exiting = True
            self._send_exit(remote, now)
        elif was_stuck:
            self._io.close(remote.peer, effect.reason)  # a PING must not make it idle: it may still run the old job

    def _join(self, remote: RemoteWorker, now: float, held_back_until: float) -> bool:
        worker = self._broker.join(
            self._recipient,
            remote,
            remote.name,
            (self._options.service,),
            self._profile,
            now,
            remote.peer.owner,
            held_back_until=held_back_until,
            origin=remote.peer.label,
        )
        if worker is None:
            self._refuse(remote, now)
            return False
        remote.worker = worker
        self._io.when_settled(remote.peer, partial(self._broker.idle, worker))
        return True

    def _refuse(self, remote: RemoteWorker, now: float) -> None:
        """Send EXIT to a worker without the right to join (R174). Any other one gets no PONG, and reconnects."""
        principal, services = remote.peer.owner.principal, (self._options.service,)
        refusal, reason = join_refusal(principal, services, self._broker.policy)
        if refusal is RefusalReason.FORBIDDEN:
            remote.is_exiting = True
            self._send_exit(remote, now)
        else:
            self._io.remark("worker rejected", level="warning", peer=remote.peer, worker=remote.name, reason=reason)

    def _ready(self, remote: RemoteWorker, now: float) -> None:
        if remote.is_exiting:
            self._send_exit(remote, now)
            return
        worker, attempt = remote.worker, remote.attempt
        if worker is None:
            if not self._join(remote, now, held_back_until=0.0):
                return
        elif attempt is None:
            self._broker.seen(worker, now)  # R33
        elif self._options.edition is Edition.PACKAGE:
            self._ready_with_token(remote, attempt, now)
            return
        elif _is_stuck(remote):  # READY proves it free (R36)
            self._broker.idle(worker, now)
        else:
            self._broker.counters.ready_while_busy += 1
            self._broker.counters.ambiguous_results += 1  # R44: it may even be the result
            if (
                now - max(attempt.given, self._broker.resumed_at) < CROSSING
            ):  # R34; a pause of the broker does not count (D13)
                self._broker.seen(worker, now)
            else:
                self._broker.fail(attempt, "its worker sent READY instead of a result", now)
        self._io.send(remote.peer, PONG_FRAMES)

    def _ready_with_token(self, remote: RemoteWorker, attempt: Attempt, now: float) -> None:
        """READY from a worker of edition `package` that holds an attempt: a heartbeat, like PING (R34, R36). Workers in
        the field repeat READY while they work, and the token of a result tells which job it ends. If the worker has
        dropped the job nevertheless, its attempt does not run for longer than `job_timeout` from now."""
        self._broker.counters.ready_while_busy += 1
        self._broker.attempts.limit(attempt, self._profile.job_timeout, now)
        if not (remote.fell_silent and _is_stuck(remote)):
            self._io.send(remote.peer, PONG_FRAMES)

    def _ping(self, remote: RemoteWorker, ping: Ping, now: float) -> None:
        if remote.is_exiting:
            self._send_exit(remote, now)
            return
        worker = remote.worker
        if worker is None:
            held_back = self._trust_after if now < self._trust_after else 0.0
            if not self._options.adopt_on_ping or not self._join(remote, now, held_back_until=held_back):
                return  # R30: without a PONG it reconnects with READY
        else:
            self._broker.seen(worker, now)
            record_heartbeat(worker, "PING/PONG", now)
            if remote.fell_silent and _is_stuck(remote):
                return  # R36: it is back in its loop without the job; without a PONG it reconnects with READY
        if now - remote.ponged < PONG_EVERY:
            self._broker.counters.throttled_pings += 1
            return
        remote.ponged = now
        if ping.counts:
            self._record_count(remote, ping.counts[0])
            self._io.send(remote.peer, [b"", PONG, *ping.counts])
        else:
            self._io.send(remote.peer, PONG_FRAMES)

    def _record_silence(self, remote: RemoteWorker, now: float) -> None:
        """Record if a worker with a job is silent: a threaded worker pings during a job, another one only after it."""
        if remote.attempt is not None:
            since = max(remote.quiet_since, self._broker.resumed_at)  # a pause of the broker does not count (D13)
            if now - since > 2 * self._options.ping_every:
                remote.fell_silent = True
            remote.quiet_since = now

    def _record_count(self, remote: RemoteWorker, frame: Frame) -> None:
        if frame.isdigit():
            count = int(frame)
            if count < remote.count:
                self._io.remark("ping count decreased", peer=remote.peer, worker=remote.name)
            remote.count = count

    def _send_exit(self, remote: RemoteWorker, now: float) -> None:
        """Send EXIT. A worker that stays gets it again, and is disconnected in the end (R46)."""
        if now - remote.exited < EXIT_EVERY:
            return
        if remote.exits >= EXITS:
            self._io.close(remote.peer, "it did not leave after EXIT")
            return
        remote.exits += 1
        remote.exited = now
        self._io.send(remote.peer, EXIT_FRAMES)


def _is_stuck(remote: RemoteWorker) -> bool:
    """Tell if its attempt has ended without its result (D11)."""
    attempt = remote.attempt
    return attempt is not None and attempt.job.attempt is not attempt
