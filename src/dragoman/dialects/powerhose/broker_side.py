"""The broker's side of Powerhose: workers register, and the broker dials them. Rules R51 to R59.

A worker is its endpoint (R52). The broker has one connection to each, REQ to its REP. The lock-step of this connection
ties a result to its job: WAKE, GIVE, JOB, JOBRES, one at a time. A message out of step ends the connection, so that a
late message cannot arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, cast

from dragoman.carriers.carrier import Carrier, Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.admission import forbidden_work, join_refusal
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import CancelAttempt, DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Job
from dragoman.core.oversize import over_max_payload
from dragoman.core.recipients import RemoteWorker
from dragoman.core.recording import from_worker, record_heartbeat, to_worker
from dragoman.core.rights import Right
from dragoman.dialects.frontend import Frontend
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.dialects.listener_profile import default_job_options, silent_worker
from dragoman.dialects.powerhose.codec import body_of, read_registration, read_result, write_job
from dragoman.dialects.powerhose.messages import ERROR, GIVE, PONG, REMOVED, WAKE, Ping
from dragoman.dialects.powerhose.options import ListenerOptions
from dragoman.dialects.powerhose.records import RegistrationConnection, RemotePowerhoseWorker, WorkerStage

BACKEND: Final = "backend"
WORK: Final = "work"
ATTEMPTS: Final = 3  # the document: "ask another worker"
DIAL_EVERY: Final = 0.05
DIAL_FOR: Final = 1.0
LONGEST_RETRY_DELAY: Final = 30.0
DIALS_AT_ONCE: Final = 1000  # endpoints that are being dialled
WORKERS_AT_ONCE: Final = 10_000  # endpoints on the list: each has a connection
WORKERS_KEPT: Final = 1000  # endpoints off the list whose retry delay and use of ids are remembered
PONG_FRAMES: Final = [b"", PONG]
REMOVED_FRAMES: Final = [b"", REMOVED]
ERROR_FRAMES: Final = [b"", ERROR]

# Decides if an endpoint may be dialled that a client of this address named: an address to dial, or None and a reason.
Reach = Callable[[str, str], tuple[object | None, str]]


class PowerhoseBrokerSide(BrokerSide):
    dialect = "powerhose"

    def __init__(
        self,
        broker: Broker,
        io: BrokerIO,
        options: ListenerOptions,
        max_payload: int,
        reach: Reach,
        carrier: Callable[[], Carrier],
        limits: object = None,
    ) -> None:
        self._broker = broker
        self._io = io
        self._options = options
        self._max_payload = max_payload
        self._reach = reach
        self._carrier = carrier  # for outgoing connections
        self._limits = limits  # of the runner, for outgoing connections
        profile = silent_worker(options, options.worker_expire)
        self._profile = replace(profile, may_decline=True, attempts=ATTEMPTS, comes_back=True)
        job_options = replace(default_job_options(options), default_attempts=ATTEMPTS)
        self._frontend = Frontend(broker, io, options.service, job_options, max_payload)
        self._remotes: dict[str, RemotePowerhoseWorker] = {}
        self._away: dict[RemotePowerhoseWorker, None] = {}  # workers off the list, longest first
        self._dialling: dict[RemotePowerhoseWorker, None] = {}
        self._alarms: Deadlines[RemotePowerhoseWorker] = Deadlines()

    # ---------------------------------------------------------------- calls from the runner

    def opened(self, peer: Connection, now: float) -> None:
        if peer.socket_name == WORK:
            self._connected(peer, peer.remote, now)
        elif peer.socket_name == BACKEND:
            peer.remote = RegistrationConnection()

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        remote = peer.remote
        if type(remote) is RemotePowerhoseWorker:
            self._receive_worker(remote, message, now)
            return
        try:
            if remote is None:
                self._frontend.receive(peer, message, now)
            elif type(message) is TooLarge:
                raise message.malformed()
            else:
                self._receive_registration(peer, remote, message, now)
        except Malformed as problem:
            self._io.bad_message(peer, problem.reason, problem.detail)
            if type(remote) is RegistrationConnection:
                self._io.send(peer, ERROR_FRAMES)

    def unsent(self, remote: RemoteWorker) -> int:
        peer = cast(RemotePowerhoseWorker, remote).peer
        return self._io.unsent(peer) if peer is not None else 0

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._wake(effect.attempt, now)
        elif type(effect) is DeliverOutcome:
            self._frontend.answer(effect, now)
        elif type(effect) is CancelAttempt:
            self._cancel(effect.attempt, effect.reason, now)
        elif type(effect) is RemoveWorker:
            self._remove_worker(effect)
        # Acknowledge: callers of Powerhose cannot submit background jobs.

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        remote = peer.remote
        if remote is None:
            self._frontend.lost(peer, now)
        elif isinstance(remote, RemotePowerhoseWorker) and remote.peer is peer:
            remote.peer = None
            if remote.worker is None:
                self._dial_failed(remote, now)
            else:
                is_unseen = remote.stage is WorkerStage.WAKING or remote.attempt in unsent
                self._drop(remote, "its worker's connection ended", now, is_unseen=is_unseen)

    def tick(self, now: float) -> float:
        for remote in self._alarms.due(now):
            if remote.due > now:
                self._alarms.arm(remote, remote.due)
            elif remote.stage is WorkerStage.DIALLING and remote.peer is None:
                self._dial(remote, now)
            elif remote.stage is WorkerStage.DIALLING:
                self._io.log_limited("worker unreachable", worker=remote.endpoint)
                self._disconnect(remote, f"no handshake within {DIAL_FOR:g} s")
            elif remote.stage is WorkerStage.WAKING:
                self._wake_timed_out(remote, now)
        return self._alarms.next()

    # ---------------------------------------------------------------- registration

    def _receive_registration(
        self, peer: Connection, registration: RegistrationConnection, message: Message, now: float
    ) -> None:
        parsed = read_registration(message)
        endpoint = parsed.endpoint if parsed.endpoint is not None else registration.endpoint
        if endpoint is None:
            raise Malformed("no endpoint", "no endpoint in this message or an earlier one; send PING:::<endpoint>")
        registered = self._remotes.get(endpoint)
        if registered is not None and registered.owner.principal is not peer.owner.principal:
            if registered.is_in_use(self._options.service):
                raise _foreign(endpoint)
            self._forget(registered)  # by a principal that has lost the right
            registered = None
        if type(parsed) is Ping:
            principal, services = peer.owner.principal, (self._options.service,)
            if forbidden_work(principal, services) is not None:
                self._broker.refused_rights.note(principal, Right.WORK, services, self.dialect)
                self._io.send(peer, ERROR_FRAMES)  # R174
                return
            self._ping(peer, endpoint, now)
            registration.endpoint = endpoint
            self._io.send(peer, PONG_FRAMES)
        else:
            if registered is not None:
                self._remove(registered, now)
            self._io.send(peer, REMOVED_FRAMES)

    def _ping(self, peer: Connection, endpoint: str, now: float) -> None:
        """Register the worker, or renew its lease (R59)."""
        remote = self._remotes.get(endpoint)
        if remote is not None and remote.stage is not WorkerStage.AWAY:
            if remote.address != peer.address:
                self._check_reach(endpoint, peer)
                self._broker.counters.takeovers += 1
                self._io.log_limited("endpoint conflict", peer=peer, endpoint=endpoint)
                remote.address = peer.address
            if remote.worker is not None:
                self._broker.seen(remote.worker, now)
                record_heartbeat(remote.worker, "PING/PONG", now)
            return
        place = self._check_reach(endpoint, peer)
        if remote is None:
            self._check_free(place, endpoint, peer)
            remote = self._remotes[endpoint] = RemotePowerhoseWorker(endpoint, peer.owner)
        elif now < remote.retry_at:
            return  # it did not reply to the last WAKE (R57)
        self._away.pop(remote, None)
        if len(self._dialling) >= DIALS_AT_ONCE or len(self._remotes) - len(self._away) > WORKERS_AT_ONCE:
            self._set_away(remote)  # I5: its next PING may find room
            return
        self._dialling[remote] = None
        remote.address, remote.place = peer.address, str(place)
        remote.stage = WorkerStage.DIALLING
        remote.dial_until = now + DIAL_FOR
        self._dial(remote, now)

    def _check_reach(self, endpoint: str, peer: Connection) -> object:
        """Return the place of an endpoint. Raises Malformed if a client of this address may not name it (R51)."""
        place, problem = self._reach(endpoint, peer.address)
        if place is None:
            raise Malformed("endpoint not allowed", f"{endpoint[:200]!r}: {problem}")
        return place

    def _check_free(self, place: object, endpoint: str, peer: Connection) -> None:
        """Raise Malformed if another principal has registered this place under another spelling (R177)."""
        name = str(place)
        for other in self._remotes.values():
            is_foreign = other.owner.principal is not peer.owner.principal
            if other.place == name and is_foreign and other.is_in_use(self._options.service):
                raise _foreign(endpoint)

    def _remove(self, remote: RemotePowerhoseWorker, now: float) -> None:
        """Remove the worker at its own request. A running job may finish first (R58)."""
        if remote.stage is WorkerStage.WORKING and remote.worker is not None:
            self._broker.availability.drain(remote.worker, now)
        else:  # a job without GIVE goes to another worker
            self._drop(remote, "its worker sent REMOVE", now, is_unseen=True)
        if remote.stage is WorkerStage.AWAY:
            self._forget(remote)

    # ---------------------------------------------------------------- the broker's connection to a worker

    def _dial(self, remote: RemotePowerhoseWorker, now: float) -> None:
        """Dial the worker. Its endpoint is checked each time: the file may have appeared or changed since."""
        place, problem = self._reach(remote.endpoint, remote.address)
        if place is None:
            self._io.log_limited("dial rejected", worker=remote.endpoint, reason=problem)
            self._set_away(remote)
            return
        remote.peer = self._io.dial(self, place, WORK, self._carrier(), remote.owner, self._limits)
        remote.peer.remote = remote
        remote.due = remote.dial_until
        self._alarms.arm(remote, remote.due)

    def _connected(self, peer: Connection, remote: RemotePowerhoseWorker, now: float) -> None:
        if remote.peer is not peer:
            return  # it was dropped during the handshake
        offered = (self._options.service,)
        worker = self._broker.join(
            self, remote, remote.endpoint, offered, self._profile, now, remote.owner, origin=peer.label
        )
        if worker is None:
            _, reason = join_refusal(remote.owner.principal, offered, self._broker.policy)
            self._io.log_limited("worker rejected", peer=peer, worker=remote.endpoint, reason=reason)
            self._disconnect(remote, reason)
            return
        remote.worker = worker
        remote.stage = WorkerStage.IDLE
        remote.due = inf
        self._dialling.pop(remote, None)
        self._broker.idle(worker, now)

    def _dial_failed(self, remote: RemotePowerhoseWorker, now: float) -> None:
        """Dial again for a while, then take the worker off the list until its next PING (R53)."""
        if now + DIAL_EVERY <= remote.dial_until:
            remote.due = now + DIAL_EVERY
            self._alarms.arm(remote, remote.due)
        else:
            self._io.log_limited("worker unreachable", worker=remote.endpoint)
            self._set_away(remote)

    def _receive_worker(self, remote: RemotePowerhoseWorker, message: Message | TooLarge, now: float) -> None:
        if remote.worker is None or remote.peer is None:
            return  # it is being removed
        try:
            if isinstance(message, TooLarge):
                self._result_too_large(remote, message, now)
                return
            body = body_of(message)
            if remote.stage is WorkerStage.WAKING and body == GIVE:
                self._send_job(remote, now)
            elif remote.stage is WorkerStage.WAKING:
                if (attempt := remote.attempt) is not None:
                    from_worker(attempt, "no GIVE", len(body), now, can_be_late=False)
                self._drop(remote, "its worker declined the job", now, is_unseen=True)
            elif remote.stage is WorkerStage.WORKING:
                self._result(remote, body, now)
            else:
                raise Malformed("out of step", "a message came, but neither GIVE nor JOBRES was due")
        except Malformed as problem:
            self._io.bad_message(remote.peer, problem.reason, problem.detail)
            reason = f"its worker sent a bad message: {problem.reason}"
            self._drop(remote, reason, now, is_unseen=remote.stage is WorkerStage.WAKING)

    def _wake(self, attempt: Attempt, now: float) -> None:
        remote = cast(RemotePowerhoseWorker, attempt.worker.remote)
        remote.stage = WorkerStage.WAKING
        remote.due = now + self._options.wake_timeout
        attempt.postpone()  # until GIVE, `wake_timeout` applies
        self._alarms.arm(remote, remote.due)
        assert remote.peer is not None
        if attempt.job.conversation is not None:
            to_worker(attempt, "WAKE", len(WAKE), now)
        self._io.send(remote.peer, [b"", WAKE])

    def _send_job(self, remote: RemotePowerhoseWorker, now: float) -> None:
        attempt, worker = remote.attempt, remote.worker
        assert attempt is not None
        assert worker is not None
        remote.due = inf
        remote.retry_delay = 0.0
        self._broker.seen(worker, now)
        job = attempt.job
        if job.conversation is not None:
            from_worker(attempt, "GIVE", len(GIVE), now, can_be_late=False)
        if job.attempt is attempt and not job.callers and not job.is_kept:
            self._broker.withdraw(job, now, "its caller has gone")  # R18: it has not started
        if job.attempt is not attempt:  # cancelled meanwhile, and never sent
            remote.stage = WorkerStage.IDLE
            self._broker.idle(worker, now)
            return
        remote.stage = WorkerStage.WORKING
        remote.job_name = name_of(job)
        self._broker.attempts.begin(attempt, now)
        assert remote.peer is not None
        if job.conversation is not None:
            to_worker(attempt, "JOB", len(job.payload), now)
        self._io.send(remote.peer, write_job(remote.job_name, job.payload), attempt)

    def _result(self, remote: RemotePowerhoseWorker, body: Frame, now: float) -> None:
        attempt = remote.attempt
        assert attempt is not None
        if attempt.job.conversation is not None:
            from_worker(attempt, "JOBRES", len(body), now)
        result, named = read_result(body, remote.job_name, remote.has_ids)
        remote.has_ids = remote.has_ids or named
        remote.stage = WorkerStage.IDLE
        size = len(result)
        if size > self._max_payload:
            self._broker.fail(attempt, over_max_payload("its result", size, self._max_payload), now)
        elif not self._broker.succeed(attempt, result, now):
            self._io.remark("late result", peer=remote.peer, worker=remote.endpoint, job=attempt.job.id.hex())

    def _result_too_large(self, remote: RemotePowerhoseWorker, message: TooLarge, now: float) -> None:
        """Fail the job of a result over the limit, which the carrier has dropped. The worker stays in step."""
        attempt = remote.attempt
        if attempt is None or remote.stage is not WorkerStage.WORKING:
            raise message.malformed()
        remote.stage = WorkerStage.IDLE
        from_worker(attempt, "JOBRES", message.size, now)
        self._broker.fail(attempt, over_max_payload("its result", message.size, self._max_payload), now)

    def _wake_timed_out(self, remote: RemotePowerhoseWorker, now: float) -> None:
        """Drop a worker that sent no GIVE in time (R54). The delay doubles, so that a long job gets few WAKEs."""
        remote.retry_delay = min(LONGEST_RETRY_DELAY, 2 * remote.retry_delay or 1.0)
        remote.retry_at = now + remote.retry_delay
        self._drop(
            remote, f"its worker did not reply to WAKE within {self._options.wake_timeout:g} s", now, is_unseen=True
        )

    # ---------------------------------------------------------------- off the list

    def _cancel(self, attempt: Attempt, reason: str, now: float) -> None:
        """Remove a worker whose attempt timed out, and close its connection, so that a late result cannot come (R57). A
        worker whose job was cancelled may finish it: it is stuck."""
        remote = cast(RemotePowerhoseWorker, attempt.worker.remote)
        if (
            remote.attempt is attempt
            and remote.stage is WorkerStage.WORKING
            and now >= min(attempt.due, attempt.job.deadline)
        ):
            remote.retry_delay = 1.0
            remote.retry_at = now + remote.retry_delay
            self._drop(remote, reason, now)

    def _remove_worker(self, effect: RemoveWorker) -> None:
        remote = cast(RemotePowerhoseWorker, effect.worker.remote)
        if remote.worker is effect.worker:
            remote.worker = None
            self._disconnect(remote, effect.reason)

    def _drop(self, remote: RemotePowerhoseWorker, reason: str, now: float, *, is_unseen: bool = False) -> None:
        worker, attempt, remote.worker = remote.worker, remote.attempt, None
        self._disconnect(remote, reason)
        if worker is not None:
            self._broker.leave(worker, now, reason, (attempt,) if is_unseen and attempt is not None else ())

    def _disconnect(self, remote: RemotePowerhoseWorker, reason: str) -> None:
        peer, remote.peer = remote.peer, None
        if peer is not None:
            self._io.close(peer, reason)
        self._set_away(remote)

    def _set_away(self, remote: RemotePowerhoseWorker) -> None:
        """Take the worker off the list until its next PING. Its record is kept, up to WORKERS_KEPT of them."""
        remote.stage = WorkerStage.AWAY
        self._dialling.pop(remote, None)
        remote.due = inf
        self._alarms.disarm(remote)
        self._away.pop(remote, None)
        self._away[remote] = None
        while len(self._away) > WORKERS_KEPT:
            self._forget(next(iter(self._away)))

    def _forget(self, remote: RemotePowerhoseWorker) -> None:
        self._away.pop(remote, None)
        if self._remotes.get(remote.endpoint) is remote:
            del self._remotes[remote.endpoint]


def name_of(job: Job) -> bytes:
    """Return the id of a job on this wire: the caller's name for it if the caller set one, else its id."""
    for caller in job.callers:
        name: bytes | None = getattr(caller, "job_name", None)
        if name is not None:
            return name
    return job.id.hex().encode()


def _foreign(endpoint: str) -> Malformed:
    return Malformed("endpoint not allowed", f"{endpoint[:200]!r} was registered by another principal")
