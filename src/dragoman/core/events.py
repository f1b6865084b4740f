"""Events: changes of jobs, workers, services and the broker, published to any number of subscribers.

An event is an immutable value of names, numbers and strings; it refers to no job or worker that can change later. It is
created only while its kind has a subscriber; the check costs one comparison (`Events.wanted`). It leaves the core as an
effect, in order with all others, and the runner passes it to the subscribers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dragoman.core.model import Attempt, Job, JobId, Payload, Service, Worker, WorkerId
from dragoman.core.recipients import Effect, dialect_of
from dragoman.core.rights import LOCAL, Principal, Right
from dragoman.core.states import DELAYED, DEPENDENT, RUNNING, WAITING, Outcome

# Kinds of events. Each is one bit, so a number stands for any set of them.
JOB_DELAYED: Final = 1
JOB_WAITING: Final = 2
JOB_RUNNING: Final = 4
JOB_PROGRESS: Final = 8
JOB_ENDED: Final = 16
WORKER_JOINED: Final = 32
WORKER_DRAINING: Final = 64
WORKER_LEFT: Final = 128
SERVICE_PAUSED: Final = 256
SERVICE_RESUMED: Final = 512
BROKER_DRAINING: Final = 1024
RIGHT_REFUSED: Final = 2048
ADMINISTERED: Final = 4096
RESULT_LATE: Final = 8192
SERVICE_LIMITS_DIFFER: Final = 16384
JOB_DEPENDENT: Final = 32768

JOB_MOVES: Final = 7 + 32768  # dependent, delayed, waiting, running
JOB_KINDS: Final = 31 + 32768

KIND_NAMES: Final = {
    JOB_DELAYED: "delayed",
    JOB_WAITING: "waiting",
    JOB_RUNNING: "running",
    JOB_PROGRESS: "progress",
    JOB_ENDED: "ended",
    WORKER_JOINED: "joined",
    WORKER_DRAINING: "draining",
    WORKER_LEFT: "left",
    SERVICE_PAUSED: "paused",
    SERVICE_RESUMED: "resumed",
    BROKER_DRAINING: "draining",
    RIGHT_REFUSED: "refused",
    ADMINISTERED: "administered",
    RESULT_LATE: "late",
    SERVICE_LIMITS_DIFFER: "limits differ",
    JOB_DEPENDENT: "dependent",
}


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """The attempt after which a job is delayed, or waits again."""

    number: int
    worker: str
    outcome: Outcome
    reason: str
    seconds: float  # duration


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A job has entered a state, reports progress, or got a result that is dropped because its attempt has ended."""

    kind: int
    id: JobId
    service: str
    is_background: bool
    is_kept: bool  # its outcome can be requested later
    attempt: int | None = None  # number of the attempt that runs; of a late result: of its own attempt
    worker: str | None = None  # name of the worker that runs it, or that sent the late result
    worker_id: WorkerId | None = None
    outcome: Outcome | None = None
    reason: str = ""  # one sentence about the outcome
    is_quarantined: bool = False
    progress: bytes = b""
    owner: str = LOCAL  # name of the principal that submitted it
    dialect: str | None = None  # of that worker
    max_attempts: int | None = None  # of a running job, if its options have a limit
    last: EndedAttempt | None = None  # of a job that is delayed or waits
    delay: float | None = None  # of a delayed job: seconds until it is queued
    state: str = ""  # of the job, where the kind does not tell it
    caller: str = ""  # dialect of its caller; empty: not known


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """A worker has joined, is being drained, or has left."""

    kind: int
    id: WorkerId
    name: str
    dialect: str
    services: tuple[str, ...]
    capacity: int
    peer: str = ""  # label of the connection it joined by
    is_restored: bool = False  # it joined an earlier run and holds a job of that run; it has not joined this one
    reason: str = ""  # reason for which it left
    held: int = 0  # attempts that ran there when it left
    owner: str = LOCAL  # name of its principal


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """A service was paused or resumed, or its workers have declared different limits."""

    kind: int
    name: str
    by: str = ""  # name of the operator who paused it
    limits: str = ""  # the limits that hold, if its workers have declared different ones
    at: float | None = None  # the time of the pause, which may be that of an earlier run; None: now, or not known


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """The broker has begun to drain."""

    kind: int
    running: int  # attempts that may still finish


@dataclass(frozen=True, slots=True)
class RefusalEvent:
    """A principal lacked a right."""

    kind: int
    principal: str
    right: Right
    services: tuple[str, ...]  # `*`: all services
    dialect: str


@dataclass(frozen=True, slots=True)
class AdministrationEvent:
    """A principal executed an operation by its right `administer`."""

    kind: int
    principal: str
    operation: str
    target: str  # id or name of the job, worker, schedule or service; empty: the broker
    peer: str  # address or process from which the request came


Event = JobEvent | WorkerEvent | ServiceEvent | BrokerEvent | RefusalEvent | AdministrationEvent
Receive = Callable[[Event, float], None]  # with the time of the iteration
Judge = Callable[[int, Job], bool]  # decides whether an event of this kind is made for a job


class PublishEvent(Effect):
    """Pass this event to the subscribers of its kind."""

    __slots__ = ("event",)

    def __init__(self, event: Event) -> None:
        self.event = event


class Subscription:
    """The entry of one subscriber."""

    __slots__ = ("is_active", "judge", "kinds", "receive")

    def __init__(self, kinds: int, receive: Receive, judge: Judge | None = None) -> None:
        self.kinds = kinds
        self.receive = receive
        self.judge = judge  # None: all events of these kinds are wanted
        self.is_active = True


class Events:
    """Registry of subscribers, and the only place where events are created.

    The publisher checks first: `if events.wanted & JOB_ENDED: events.job_ended(job, reason)`.
    """

    __slots__ = ("_effects", "_subscriptions", "wanted")

    def __init__(self, effects: list[Effect]) -> None:
        self.wanted = 0  # all kinds with a subscriber
        self._effects = effects
        self._subscriptions: list[Subscription] = []

    # ---------------------------------------------------------------- subscribers

    def subscribe(self, kinds: int, receive: Receive, judge: Judge | None = None) -> Subscription:
        """Call `receive` with every event of these kinds that is published from now on. An event of a job that no
        subscriber wants is not made: `judge` is called for each before, and must accept those that it wants."""
        if not kinds:
            raise ValueError("no kinds of events given: name at least one, such as JOB_ENDED | WORKER_LEFT")
        subscription = Subscription(kinds, receive, judge)
        self._subscriptions.append(subscription)
        self.wanted |= kinds
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription at once, even while an event is being published. Ending it twice does no harm."""
        subscription.is_active = False
        self._subscriptions = [each for each in self._subscriptions if each is not subscription]
        self.wanted = 0
        for each in self._subscriptions:
            self.wanted |= each.kinds

    def subscribers_of(self, event: Event) -> list[Subscription]:
        """Return the subscriptions to this event's kind, oldest first. Check `is_active` before calling each."""
        return [each for each in self._subscriptions if each.kinds & event.kind]

    # ---------------------------------------------------------------- publishing

    def job_moved(self, job: Job) -> None:
        """Publish the job's new state, if it is wanted. `job_ended` publishes its end."""
        state = job.state
        if state is RUNNING:
            kind = JOB_RUNNING
        elif state is WAITING:
            kind = JOB_WAITING
        elif state is DELAYED:
            kind = JOB_DELAYED
        else:
            assert state is DEPENDENT
            kind = JOB_DEPENDENT
        if self.wanted & kind:
            self._publish_job(kind, job)

    def job_progressed(self, job: Job, payload: Payload) -> None:
        self._publish_job(JOB_PROGRESS, job, progress=bytes(payload))

    def job_ended(self, job: Job, reason: str) -> None:
        self._publish_job(JOB_ENDED, job, reason)

    def result_late(self, attempt: Attempt) -> None:
        """Publish that a result is dropped, because its attempt has ended (D2), if somebody wants to know."""
        if self.wanted & RESULT_LATE and self._is_wanted(RESULT_LATE, attempt.job):
            self._effects.append(PublishEvent(_job_event(RESULT_LATE, attempt.job, attempt)))

    def worker_changed(self, kind: int, worker: Worker, reason: str = "", held: int = 0) -> None:
        names = tuple([service.name for service in worker.services])
        origin = worker.origin
        event = WorkerEvent(
            kind,
            worker.id,
            worker.name,
            dialect_of(worker.recipient),
            names,
            worker.profile.capacity,
            origin or "",
            origin is None,
            reason,
            held,
            worker.owner.principal.name,
        )
        self._effects.append(PublishEvent(event))

    def service_changed(self, kind: int, service: Service) -> None:
        self._effects.append(PublishEvent(ServiceEvent(kind, service.name, service.paused_by, at=service.paused_at)))

    def limits_differ(self, service: str, limits: str) -> None:
        self._effects.append(PublishEvent(ServiceEvent(SERVICE_LIMITS_DIFFER, service, limits=limits)))

    def broker_draining(self, running: int) -> None:
        self._effects.append(PublishEvent(BrokerEvent(BROKER_DRAINING, running)))

    def right_refused(self, principal: Principal, right: Right, services: tuple[str, ...], dialect: str) -> None:
        event = RefusalEvent(RIGHT_REFUSED, principal.name, right, services, dialect)
        self._effects.append(PublishEvent(event))

    def administered(self, principal: Principal, operation: str, target: str, origin: str) -> None:
        event = AdministrationEvent(ADMINISTERED, principal.name, operation, target, origin)
        self._effects.append(PublishEvent(event))

    def _is_wanted(self, kind: int, job: Job) -> bool:
        """Ask all subscribers of this kind: each has to know of every event."""
        is_wanted = False
        for each in self._subscriptions:
            if each.kinds & kind and (each.judge is None or each.judge(kind, job)):
                is_wanted = True
        return is_wanted

    def _publish_job(self, kind: int, job: Job, reason: str = "", progress: bytes = b"") -> None:
        if self._is_wanted(kind, job):
            self._effects.append(PublishEvent(_job_event(kind, job, job.attempt, reason, progress)))


def _job_event(kind: int, job: Job, attempt: Attempt | None, reason: str = "", progress: bytes = b"") -> JobEvent:
    last = _last_attempt(job) if kind in (JOB_DELAYED, JOB_WAITING) else None
    return JobEvent(
        kind,
        job.id,
        job.service.name,
        job.options.durable,
        job.is_kept,
        attempt.number if attempt is not None else None,
        attempt.worker.name if attempt is not None else None,
        attempt.worker.id if attempt is not None else None,
        job.outcome,
        reason,
        job.quarantined and kind == JOB_ENDED,
        progress,
        job.owner.principal.name,
        dialect_of(attempt.worker.recipient) if attempt is not None else None,
        job.options.attempts if kind == JOB_RUNNING else None,
        last,
        _delay(job) if kind == JOB_DELAYED else None,
        job.state.value if kind == RESULT_LATE else "",
        job.caller_dialect,
    )


def _last_attempt(job: Job) -> EndedAttempt | None:
    """Return the attempt that the job has used up last."""
    if not job.history:
        return None
    record = job.history[-1]
    started, ended = record.started, record.ended
    took = ended - started if started is not None and ended is not None else 0.0
    return EndedAttempt(record.number, record.worker, record.outcome, record.reason, took)


def _delay(job: Job) -> float:
    """Return the delay of a job from its submit, or from the end of its last attempt."""
    ended = job.history[-1].ended if job.history else None
    return max(0.0, job.start_at - (ended if ended is not None else job.created))
