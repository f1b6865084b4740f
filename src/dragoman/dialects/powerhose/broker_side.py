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
from dragoman.dialects.listener_profile import job_options, silent_worker
from dragoman.dialects.powerhose.codec import body_of, read_registration, read_result, write_job
from dragoman.dialects.powerhose.messages import ERROR, GIVE, PONG, REMOVED, WAKE, Ping
from dragoman.dialects.powerhose.options import ListenerOptions

BACKEND: Final = "backend"
WORK: Final = "work"
ATTEMPTS: Final = 3  # the document: "ask another worker"
DIAL_EVERY: Final = 0.05
DIAL_FOR: Final = 1.0
LONGEST_REST: Final = 30.0
DIALS_AT_ONCE: Final = 1000  # endpoints that we try to reach
WORKERS_AT_ONCE: Final = 10_000  # endpoints on the list: each is a connection of ours
POSTS_KEPT: Final = 1000  # endpoints remembered that are not on the list: whether they name ids, how long they rest
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
        "rest",
        "rested_at",
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
        self.rest = 0.0  # how long it is left alone, because it did not answer WAKE (R57)
        self.rested_at = -inf  # until when
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
        line: BrokerIO,
        options: ListenerOptions,
        max_payload: int,
        reach: Reach,
        carrier: Callable[[], Carrier],
        limits: object = None,
    ) -> None:
        self._broker = broker
        self._line = line
        self._options = options
        self._max_payload = max_payload
        self._reach = reach
        self._carrier = carrier  # of the connections that we open
        self._limits = limits  # the line's, for them
        profile = silent_worker(options, options.worker_expire)
        self._terms = replace(profile, may_refuse=True, attempts=ATTEMPTS, comes_back=True)
        wishes = replace(job_options(options), default_attempts=ATTEMPTS)
        self._frontend = Frontend(broker, line, options.service, wishes, max_payload)
        self._posts: dict[str, PowerhoseWorker] = {}
        self._away: dict[PowerhoseWorker, None] = {}  # those off the list, longest first
        self._dialling: dict[PowerhoseWorker, None] = {}
        self._alarms: Deadlines[PowerhoseWorker] = Deadlines()

    # ---------------------------------------------------------------- the seam

    def opened(self, peer: Connection, now: float) -> None:
        if peer.endpoint == WORK:
            self._reached(peer, peer.guest, now)
        elif peer.endpoint == BACKEND:
            peer.guest = RegistrationConnection()

    def hear(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        guest = peer.guest
        if type(guest) is PowerhoseWorker:
            self._hear_worker(guest, message, now)
            return
        try:
            if guest is None:
                self._frontend.hear(peer, message, now)
            elif type(message) is TooLarge:
                raise message.malformed()
            else:
                self._hear_registrant(peer, guest, message, now)
        except Malformed as problem:
            self._line.bad_message(peer, problem.reason, problem.detail)
            if type(guest) is RegistrationConnection:
                self._line.send(peer, ERROR_FRAMES)

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
        guest = peer.guest
        if guest is None:
            self._frontend.lost(peer, now)
        elif isinstance(guest, PowerhoseWorker) and guest.peer is peer:
            guest.peer = None
            if guest.worker is None:
                self._not_reached(guest, now)
            else:
                is_unseen = guest.stage is WorkerStage.WAKING or guest.attempt in unsent
                self._drop(guest, "its worker's connection ended", now, is_unseen=is_unseen)

    def tick(self, now: float) -> float:
        for post in self._alarms.due(now):
            if post.due > now:
                self._alarms.arm(post, post.due)
            elif post.stage is WorkerStage.DIALLING and post.peer is None:
                self._dial(post, now)
            elif post.stage is WorkerStage.DIALLING:
                self._line.complain("worker not reached", worker=post.endpoint)
                self._hang_up(post, f"no handshake within {DIAL_FOR:g} s")
            elif post.stage is WorkerStage.WAKING:
                self._unanswered(post, now)
        return self._alarms.next()

    # ---------------------------------------------------------------- registration

    def _hear_registrant(
        self, peer: Connection, registrant: RegistrationConnection, message: Message, now: float
    ) -> None:
        word = read_registration(message)
        endpoint = word.endpoint if word.endpoint is not None else registrant.endpoint
        if endpoint is None:
            raise Malformed("no endpoint", "a bare word on a connection that has not named an endpoint")
        if type(word) is Ping:
            self._ping(peer, endpoint, now)
            registrant.endpoint = endpoint
            self._line.send(peer, PONG_FRAMES)
        else:
            post = self._posts.get(endpoint)
            if post is not None:
                self._remove(post, now)
            self._line.send(peer, REMOVED_FRAMES)

    def _ping(self, peer: Connection, endpoint: str, now: float) -> None:
        """Register it, or note that it lives (R59)."""
        post = self._posts.get(endpoint)
        if post is not None and post.stage is not WorkerStage.AWAY:
            if post.address != peer.address:
                self._check_reach(endpoint, peer)
                self._broker.counters.takeovers += 1
                self._line.complain("endpoint claimed from elsewhere", peer=peer, endpoint=endpoint)
                post.address = peer.address
            if post.worker is not None:
                self._broker.seen(post.worker, now)
            return
        self._check_reach(endpoint, peer)
        if post is None:
            post = self._posts[endpoint] = PowerhoseWorker(endpoint)
        elif now < post.rested_at:
            return  # it did not answer when it was last asked (R57)
        self._away.pop(post, None)
        if len(self._dialling) >= DIALS_AT_ONCE or len(self._posts) - len(self._away) > WORKERS_AT_ONCE:
            self._set_away(post)  # I5: its next PING may find room
            return
        self._dialling[post] = None
        post.address = peer.address
        post.stage = WorkerStage.DIALLING
        post.dial_until = now + DIAL_FOR
        self._dial(post, now)

    def _check_reach(self, endpoint: str, peer: Connection) -> None:
        """R51: whoever names an endpoint must be one for whom we would dial it."""
        place, problem = self._reach(endpoint, peer.address)
        if place is None:
            raise Malformed("endpoint not allowed", f"{endpoint[:200]!r}: {problem}")

    def _remove(self, post: PowerhoseWorker, now: float) -> None:
        """It leaves. A job in its hands may end first (R58)."""
        if post.stage is WorkerStage.WORKING and post.worker is not None:
            self._broker.drain(post.worker, now)
        else:  # a job that it was only asked about goes to another
            self._drop(post, "its worker said REMOVE", now, is_unseen=True)
        if post.stage is WorkerStage.AWAY:
            self._forget(post)

    # ---------------------------------------------------------------- our own connection to a worker

    def _dial(self, post: PowerhoseWorker, now: float) -> None:
        """Asked anew each time: what lies at its endpoint may have come, or changed, since it was named."""
        place, problem = self._reach(post.endpoint, post.address)
        if place is None:
            self._line.complain("worker not dialled", worker=post.endpoint, reason=problem)
            self._set_away(post)
            return
        post.peer = self._line.dial(self, place, WORK, self._carrier(), self._limits)
        post.peer.guest = post
        post.due = post.dial_until
        self._alarms.arm(post, post.due)

    def _reached(self, peer: Connection, post: PowerhoseWorker, now: float) -> None:
        if post.peer is not peer:
            return  # it was given up while it greeted
        offered = (self._options.service,)
        worker = self._broker.join(self, post, post.endpoint, offered, self._terms, now, origin=peer.label)
        if worker is None:
            self._line.complain("worker refused", peer=peer, worker=post.endpoint)
            self._hang_up(post, "there is no room for its service")
            return
        post.worker = worker
        post.stage = WorkerStage.IDLE
        post.due = inf
        self._dialling.pop(post, None)
        self._broker.idle(worker, now)

    def _not_reached(self, post: PowerhoseWorker, now: float) -> None:
        """R53: again for a while, then off the list until its next PING."""
        if now + DIAL_EVERY <= post.dial_until:
            post.due = now + DIAL_EVERY
            self._alarms.arm(post, post.due)
        else:
            self._line.complain("worker not reached", worker=post.endpoint)
            self._set_away(post)

    def _hear_worker(self, post: PowerhoseWorker, message: Message | TooLarge, now: float) -> None:
        if post.worker is None or post.peer is None:
            return  # its end is decided
        try:
            if isinstance(message, TooLarge):
                self._result_too_large(post, message, now)
                return
            body = body_of(message)
            if post.stage is WorkerStage.WAKING and body == GIVE:
                self._give(post, now)
            elif post.stage is WorkerStage.WAKING:
                self._drop(post, "its worker did not take it", now, is_unseen=True)
            elif post.stage is WorkerStage.WORKING:
                self._result(post, body, now)
            else:
                raise Malformed("out of step", "a message that nobody asked for")
        except Malformed as problem:
            self._line.bad_message(post.peer, problem.reason, problem.detail)
            reason = f"its worker broke the step: {problem.reason}"
            self._drop(post, reason, now, is_unseen=post.stage is WorkerStage.WAKING)

    def _wake(self, attempt: Attempt, now: float) -> None:
        post = cast(PowerhoseWorker, attempt.worker.remote)
        post.stage = WorkerStage.WAKING
        post.due = now + self._options.wake_timeout
        attempt.postpone()  # until GIVE, `wake_timeout` judges
        self._alarms.arm(post, post.due)
        assert post.peer is not None
        self._line.send(post.peer, [b"", WAKE])

    def _give(self, post: PowerhoseWorker, now: float) -> None:
        attempt, worker = post.attempt, post.worker
        assert attempt is not None
        assert worker is not None
        post.due = inf
        post.rest = 0.0
        self._broker.seen(worker, now)
        job = attempt.job
        if job.attempt is attempt and not job.callers and not job.is_kept:
            self._broker.withdraw(job, now, "its caller has gone")  # R18: it has not begun
        if job.attempt is not attempt:  # it was cancelled meanwhile, and never sent
            post.stage = WorkerStage.IDLE
            self._broker.idle(worker, now)
            return
        post.stage = WorkerStage.WORKING
        post.job_name = name_of(job)
        self._broker.begin(attempt, now)
        assert post.peer is not None
        self._line.send(post.peer, write_job(post.job_name, job.payload), attempt)

    def _result(self, post: PowerhoseWorker, body: Frame, now: float) -> None:
        attempt = post.attempt
        assert attempt is not None
        result, named = read_result(body, post.job_name, post.has_ids)
        post.has_ids = post.has_ids or named
        post.stage = WorkerStage.IDLE
        if not self._broker.succeed(attempt, result, now):
            self._line.remark("late result", peer=post.peer, worker=post.endpoint, job=attempt.job.id.hex())

    def _result_too_large(self, post: PowerhoseWorker, message: TooLarge, now: float) -> None:
        """It was skipped as it came: the job has failed, and the step is kept."""
        attempt = post.attempt
        if attempt is None or post.stage is not WorkerStage.WORKING:
            raise message.malformed()
        post.stage = WorkerStage.IDLE
        self._broker.fail(attempt, over_max_payload("its result", message.size, self._max_payload), now)

    def _unanswered(self, post: PowerhoseWorker, now: float) -> None:
        """R54: no GIVE in time. It is left alone, longer each time: a long job is not asked about at every PING."""
        post.rest = min(LONGEST_REST, 2 * post.rest or 1.0)
        post.rested_at = now + post.rest
        self._drop(post, f"its worker did not answer WAKE within {self._options.wake_timeout:g} s", now, is_unseen=True)

    # ---------------------------------------------------------------- off the list

    def _recall(self, attempt: Attempt, reason: str, now: float) -> None:
        """R57: a laggy worker is removed, and its connection closed, so that a late result cannot come. One whose job
        was cancelled may end it: it is unproven."""
        post = cast(PowerhoseWorker, attempt.worker.remote)
        if (
            post.attempt is attempt
            and post.stage is WorkerStage.WORKING
            and now >= min(attempt.due, attempt.job.deadline)
        ):
            post.rest = 1.0
            post.rested_at = now + post.rest
            self._drop(post, reason, now)

    def _dismiss(self, effect: RemoveWorker) -> None:
        post = cast(PowerhoseWorker, effect.worker.remote)
        if post.worker is effect.worker:
            post.worker = None
            self._hang_up(post, effect.reason)

    def _drop(self, post: PowerhoseWorker, reason: str, now: float, *, is_unseen: bool = False) -> None:
        worker, attempt, post.worker = post.worker, post.attempt, None
        self._hang_up(post, reason)
        if worker is not None:
            self._broker.leave(worker, now, reason, (attempt,) if is_unseen and attempt is not None else ())

    def _hang_up(self, post: PowerhoseWorker, reason: str) -> None:
        peer, post.peer = post.peer, None
        if peer is not None:
            self._line.close(peer, reason)
        self._set_away(post)

    def _set_away(self, post: PowerhoseWorker) -> None:
        """Off the list until its next PING. What we learned of it is kept, for so many."""
        post.stage = WorkerStage.AWAY
        self._dialling.pop(post, None)
        post.due = inf
        self._alarms.disarm(post)
        self._away.pop(post, None)
        self._away[post] = None
        while len(self._away) > POSTS_KEPT:
            self._forget(next(iter(self._away)))

    def _forget(self, post: PowerhoseWorker) -> None:
        self._away.pop(post, None)
        if self._posts.get(post.endpoint) is post:
            del self._posts[post.endpoint]


def name_of(job: Job) -> bytes:
    """What a job is called on this wire: the name its caller gave it, if it could give one, else its id."""
    for caller in job.callers:
        name: bytes | None = getattr(caller, "job_name", None)
        if name is not None:
            return name
    return job.id.hex().encode()
