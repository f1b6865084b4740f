"""The broker's side of Powerhose: workers register, and we call them back.

A worker is its endpoint (R52). For each we keep one connection of our own, REQ to its REP, and in the lock-step of that
connection lies what ties a result to its job: WAKE, GIVE, JOB, JOBRES, one at a time. Whatever breaks the step ends the
connection, so that a late word meets nobody. The rules kept here are R51 to R59.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, cast

from dragoman.carriers.carrier import Carrier, Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import CancelAttempt, DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt, Job, Worker
from dragoman.core.oversize import over_max_payload
from dragoman.core.recipients import RemoteWorker
from dragoman.dialects.frontend import Frontend
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.dialects.listener_profile import default_job_options, silent_worker
from dragoman.dialects.powerhose.codec import body_of, read_registration, read_result, write_job
from dragoman.dialects.powerhose.messages import ERROR, GIVE, PONG, REMOVED, WAKE, Ping
from dragoman.dialects.powerhose.options import ListenerOptions

BACKEND: Final = "backend"
WORK: Final = "work"
ATTEMPTS: Final = 3  # the document: "ask another worker"
DIAL_EVERY: Final = 0.05
DIAL_FOR: Final = 1.0
LONGEST_RETRY_DELAY: Final = 30.0
DIALS_AT_ONCE: Final = 1000  # endpoints that we try to reach
WORKERS_AT_ONCE: Final = 10_000  # endpoints on the list: each is a connection of ours
WORKERS_KEPT: Final = 1000  # endpoints remembered that are not on the list: whether they name ids, how long they rest
PONG_FRAMES: Final = [b"", PONG]
REMOVED_FRAMES: Final = [b"", REMOVED]
ERROR_FRAMES: Final = [b"", ERROR]

# May this endpoint be dialled, that a peer of this address has named? A place to dial, or why not.
Reach = Callable[[str, str], tuple[object | None, str]]


class WorkerStage(Enum):
    AWAY = "away"  # off the list until its next PING
    DIALLING = "dialling"
    IDLE = "idle"
    WAKING = "waking"  # asked whether it takes a job
    WORKING = "working"


class PowerhoseWorker(RemoteWorker):
    """A worker's endpoint, and what we know of who sits there."""

    __slots__ = (
        "address",
        "alarm",
        "alarm_number",
        "dial_until",
        "due",
        "endpoint",
        "has_ids",
        "job_name",
        "peer",
        "retry_at",
        "retry_delay",
        "stage",
        "worker",
    )

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.address = ""  # whoever registered it
        self.peer: Connection | None = None  # our connection to it
        self.worker: Worker | None = None
        self.job_name = b""  # what its job is called on the wire
        self.stage = WorkerStage.AWAY
        self.has_ids = False  # it has named a job's id in its answers (R56)
        self.retry_delay = 0.0  # how long it is left alone, because it did not answer WAKE (R57)
        self.retry_at = -inf  # until when
        self.dial_until = -inf
        self.due = inf  # when the next dial, or the end of our patience with WAKE, is due
        self.alarm = inf
        self.alarm_number = 0

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that it was sent and has not answered, current or not. The core knows."""
        return self.worker.held() if self.worker is not None else None


class RegistrationConnection:
    """What we know of a worker's own connection to us."""

    __slots__ = ("endpoint",)

    def __init__(self) -> None:
        self.endpoint: str | None = None


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
        self._carrier = carrier  # of the connections that we open
        self._limits = limits  # the line's, for them
        profile = silent_worker(options, options.worker_expire)
        self._profile = replace(profile, may_decline=True, attempts=ATTEMPTS, comes_back=True)
        job_options = replace(default_job_options(options), default_attempts=ATTEMPTS)
        self._frontend = Frontend(broker, io, options.service, job_options, max_payload)
        self._remotes: dict[str, PowerhoseWorker] = {}
        self._away: dict[PowerhoseWorker, None] = {}  # those off the list, longest first
        self._dialling: dict[PowerhoseWorker, None] = {}
        self._alarms: Deadlines[PowerhoseWorker] = Deadlines()

    # ---------------------------------------------------------------- the seam

    def opened(self, peer: Connection, now: float) -> None:
        if peer.socket_name == WORK:
            self._reached(peer, peer.remote, now)
        elif peer.socket_name == BACKEND:
            peer.remote = RegistrationConnection()

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        remote = peer.remote
        if type(remote) is PowerhoseWorker:
            self._receive_worker(remote, message, now)
            return
        try:
            if remote is None:
                self._frontend.receive(peer, message, now)
            elif type(message) is TooLarge:
                raise message.malformed()
            else:
                self._receive_registrant(peer, remote, message, now)
        except Malformed as problem:
            self._io.bad_message(peer, problem.reason, problem.detail)
            if type(remote) is RegistrationConnection:
                self._io.send(peer, ERROR_FRAMES)

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._wake(effect.attempt, now)
        elif type(effect) is DeliverOutcome:
            self._frontend.answer(effect)
        elif type(effect) is CancelAttempt:
            self._recall(effect.attempt, effect.reason, now)
        elif type(effect) is RemoveWorker:
            self._dismiss(effect)
        # Accept: nobody here asks for background jobs.

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        remote = peer.remote
        if remote is None:
            self._frontend.lost(peer, now)
        elif isinstance(remote, PowerhoseWorker) and remote.peer is peer:
            remote.peer = None
            if remote.worker is None:
                self._not_reached(remote, now)
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
                self._io.log_limited("worker not reached", worker=remote.endpoint)
                self._hang_up(remote, f"no handshake within {DIAL_FOR:g} s")
            elif remote.stage is WorkerStage.WAKING:
                self._unanswered(remote, now)
        return self._alarms.next()

    # ---------------------------------------------------------------- registration

    def _receive_registrant(
        self, peer: Connection, registrant: RegistrationConnection, message: Message, now: float
    ) -> None:
        parsed = read_registration(message)
        endpoint = parsed.endpoint if parsed.endpoint is not None else registrant.endpoint
        if endpoint is None:
            raise Malformed("no endpoint", "a bare word on a connection that has not named an endpoint")
        if type(parsed) is Ping:
            self._ping(peer, endpoint, now)
            registrant.endpoint = endpoint
            self._io.send(peer, PONG_FRAMES)
        else:
            remote = self._remotes.get(endpoint)
            if remote is not None:
                self._remove(remote, now)
            self._io.send(peer, REMOVED_FRAMES)

    def _ping(self, peer: Connection, endpoint: str, now: float) -> None:
        """Register it, or note that it lives (R59)."""
        remote = self._remotes.get(endpoint)
        if remote is not None and remote.stage is not WorkerStage.AWAY:
            if remote.address != peer.address:
                self._check_reach(endpoint, peer)
                self._broker.counters.takeovers += 1
                self._io.log_limited("endpoint claimed from elsewhere", peer=peer, endpoint=endpoint)
                remote.address = peer.address
            if remote.worker is not None:
                self._broker.seen(remote.worker, now)
            return
        self._check_reach(endpoint, peer)
        if remote is None:
            remote = self._remotes[endpoint] = PowerhoseWorker(endpoint)
        elif now < remote.retry_at:
            return  # it did not answer when it was last asked (R57)
        self._away.pop(remote, None)
        if len(self._dialling) >= DIALS_AT_ONCE or len(self._remotes) - len(self._away) > WORKERS_AT_ONCE:
            self._set_away(remote)  # I5: its next PING may find room
            return
        self._dialling[remote] = None
        remote.address = peer.address
        remote.stage = WorkerStage.DIALLING
        remote.dial_until = now + DIAL_FOR
        self._dial(remote, now)

    def _check_reach(self, endpoint: str, peer: Connection) -> None:
        """R51: whoever names an endpoint must be one for whom we would dial it."""
        place, problem = self._reach(endpoint, peer.address)
        if place is None:
            raise Malformed("endpoint not allowed", f"{endpoint[:200]!r}: {problem}")

    def _remove(self, remote: PowerhoseWorker, now: float) -> None:
        """It leaves. A job in its hands may end first (R58)."""
        if remote.stage is WorkerStage.WORKING and remote.worker is not None:
            self._broker.drain(remote.worker, now)
        else:  # a job that it was only asked about goes to another
            self._drop(remote, "its worker said REMOVE", now, is_unseen=True)
        if remote.stage is WorkerStage.AWAY:
            self._forget(remote)

    # ---------------------------------------------------------------- our own connection to a worker

    def _dial(self, remote: PowerhoseWorker, now: float) -> None:
        """Asked anew each time: what lies at its endpoint may have come, or changed, since it was named."""
        place, problem = self._reach(remote.endpoint, remote.address)
        if place is None:
            self._io.log_limited("worker not dialled", worker=remote.endpoint, reason=problem)
            self._set_away(remote)
            return
        remote.peer = self._io.dial(self, place, WORK, self._carrier(), self._limits)
        remote.peer.remote = remote
        remote.due = remote.dial_until
        self._alarms.arm(remote, remote.due)

    def _reached(self, peer: Connection, remote: PowerhoseWorker, now: float) -> None:
        if remote.peer is not peer:
            return  # it was given up while it greeted
        offered = (self._options.service,)
        worker = self._broker.join(self, remote, remote.endpoint, offered, self._profile, now, origin=peer.label)
        if worker is None:
            self._io.log_limited("worker refused", peer=peer, worker=remote.endpoint)
            self._hang_up(remote, "there is no room for its service")
            return
        remote.worker = worker
        remote.stage = WorkerStage.IDLE
        remote.due = inf
        self._dialling.pop(remote, None)
        self._broker.idle(worker, now)

    def _not_reached(self, remote: PowerhoseWorker, now: float) -> None:
        """R53: again for a while, then off the list until its next PING."""
        if now + DIAL_EVERY <= remote.dial_until:
            remote.due = now + DIAL_EVERY
            self._alarms.arm(remote, remote.due)
        else:
            self._io.log_limited("worker not reached", worker=remote.endpoint)
            self._set_away(remote)

    def _receive_worker(self, remote: PowerhoseWorker, message: Message | TooLarge, now: float) -> None:
        if remote.worker is None or remote.peer is None:
            return  # its end is decided
        try:
            if isinstance(message, TooLarge):
                self._result_too_large(remote, message, now)
                return
            body = body_of(message)
            if remote.stage is WorkerStage.WAKING and body == GIVE:
                self._give(remote, now)
            elif remote.stage is WorkerStage.WAKING:
                self._drop(remote, "its worker did not take it", now, is_unseen=True)
            elif remote.stage is WorkerStage.WORKING:
                self._result(remote, body, now)
            else:
                raise Malformed("out of step", "a message that nobody asked for")
        except Malformed as problem:
            self._io.bad_message(remote.peer, problem.reason, problem.detail)
            reason = f"its worker broke the step: {problem.reason}"
            self._drop(remote, reason, now, is_unseen=remote.stage is WorkerStage.WAKING)

    def _wake(self, attempt: Attempt, now: float) -> None:
        remote = cast(PowerhoseWorker, attempt.worker.remote)
        remote.stage = WorkerStage.WAKING
        remote.due = now + self._options.wake_timeout
        attempt.postpone()  # until GIVE, `wake_timeout` judges
        self._alarms.arm(remote, remote.due)
        assert remote.peer is not None
        self._io.send(remote.peer, [b"", WAKE])

    def _give(self, remote: PowerhoseWorker, now: float) -> None:
        attempt, worker = remote.attempt, remote.worker
        assert attempt is not None
        assert worker is not None
        remote.due = inf
        remote.retry_delay = 0.0
        self._broker.seen(worker, now)
        job = attempt.job
        if job.attempt is attempt and not job.callers and not job.is_kept:
            self._broker.withdraw(job, now, "its caller has gone")  # R18: it has not begun
        if job.attempt is not attempt:  # it was cancelled meanwhile, and never sent
            remote.stage = WorkerStage.IDLE
            self._broker.idle(worker, now)
            return
        remote.stage = WorkerStage.WORKING
        remote.job_name = name_of(job)
        self._broker.begin(attempt, now)
        assert remote.peer is not None
        self._io.send(remote.peer, write_job(remote.job_name, job.payload), attempt)

    def _result(self, remote: PowerhoseWorker, body: Frame, now: float) -> None:
        attempt = remote.attempt
        assert attempt is not None
        result, named = read_result(body, remote.job_name, remote.has_ids)
        remote.has_ids = remote.has_ids or named
        remote.stage = WorkerStage.IDLE
        if not self._broker.succeed(attempt, result, now):
            self._io.remark("late result", peer=remote.peer, worker=remote.endpoint, job=attempt.job.id.hex())

    def _result_too_large(self, remote: PowerhoseWorker, message: TooLarge, now: float) -> None:
        """It was skipped as it came: the job has failed, and the step is kept."""
        attempt = remote.attempt
        if attempt is None or remote.stage is not WorkerStage.WORKING:
            raise message.malformed()
        remote.stage = WorkerStage.IDLE
        self._broker.fail(attempt, over_max_payload("its result", message.size, self._max_payload), now)

    def _unanswered(self, remote: PowerhoseWorker, now: float) -> None:
        """R54: no GIVE in time. It is left alone, longer each time: a long job is not asked about at every PING."""
        remote.retry_delay = min(LONGEST_RETRY_DELAY, 2 * remote.retry_delay or 1.0)
        remote.retry_at = now + remote.retry_delay
        self._drop(
            remote, f"its worker did not answer WAKE within {self._options.wake_timeout:g} s", now, is_unseen=True
        )

    # ---------------------------------------------------------------- off the list

    def _recall(self, attempt: Attempt, reason: str, now: float) -> None:
        """R57: a laggy worker is removed, and its connection closed, so that a late result cannot come. One whose job
        was cancelled may end it: it is unproven."""
        remote = cast(PowerhoseWorker, attempt.worker.remote)
        if (
            remote.attempt is attempt
            and remote.stage is WorkerStage.WORKING
            and now >= min(attempt.due, attempt.job.deadline)
        ):
            remote.retry_delay = 1.0
            remote.retry_at = now + remote.retry_delay
            self._drop(remote, reason, now)

    def _dismiss(self, effect: RemoveWorker) -> None:
        remote = cast(PowerhoseWorker, effect.worker.remote)
        if remote.worker is effect.worker:
            remote.worker = None
            self._hang_up(remote, effect.reason)

    def _drop(self, remote: PowerhoseWorker, reason: str, now: float, *, is_unseen: bool = False) -> None:
        worker, attempt, remote.worker = remote.worker, remote.attempt, None
        self._hang_up(remote, reason)
        if worker is not None:
            self._broker.leave(worker, now, reason, (attempt,) if is_unseen and attempt is not None else ())

    def _hang_up(self, remote: PowerhoseWorker, reason: str) -> None:
        peer, remote.peer = remote.peer, None
        if peer is not None:
            self._io.close(peer, reason)
        self._set_away(remote)

    def _set_away(self, remote: PowerhoseWorker) -> None:
        """Off the list until its next PING. What we learned of it is kept, for so many."""
        remote.stage = WorkerStage.AWAY
        self._dialling.pop(remote, None)
        remote.due = inf
        self._alarms.disarm(remote)
        self._away.pop(remote, None)
        self._away[remote] = None
        while len(self._away) > WORKERS_KEPT:
            self._forget(next(iter(self._away)))

    def _forget(self, remote: PowerhoseWorker) -> None:
        self._away.pop(remote, None)
        if self._remotes.get(remote.endpoint) is remote:
            del self._remotes[remote.endpoint]


def name_of(job: Job) -> bytes:
    """What a job is called on this wire: the name its caller gave it, if it could give one, else its id."""
    for caller in job.callers:
        name: bytes | None = getattr(caller, "job_name", None)
        if name is not None:
            return name
    return job.id.hex().encode()
