"""The data model: jobs, workers, attempts, services. Read this file and you know the system.

A *caller* submits a *job* to a *service*. A *worker* that offers the service is given the job: one such handing-out is
an *attempt*, and only the current attempt may finish its job (D2). A job ends in exactly one *outcome* (D4).

States are assigned in `lifecycle.py` and nowhere else. Times are seconds on a clock that somebody else reads.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NewType

from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.infinity import inf
from dragoman.core.owners import Owner
from dragoman.core.queues import Queue, Queued
from dragoman.core.recipients import Caller, Recipient

JobId = NewType("JobId", bytes)  # 16 bytes in UUIDv7 layout, shown as 32 lower-case hex digits
WorkerId = NewType("WorkerId", int)
Token = NewType("Token", bytes)  # 16 random bytes that name one attempt
Payload = bytes | bytearray  # opaque, and never changed once handed in

# In the place of bytes that only the diary has: they are fetched before anybody is given them. Compared by identity.
ABSENT: Final[Payload] = bytearray()

DEFAULT_PRIORITY: Final = 5
HIGHEST_PRIORITY: Final = 9
BARRED_FROM_NAMES: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters, halves of a pair


class JobState(StrEnum):
    WAITING = "waiting"
    DELAYED = "delayed"
    RUNNING = "running"
    ENDED = "ended"


class Outcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class Refusal(StrEnum):
    """Why a submit was turned away. Each dialect maps these to its own words in one table."""

    NO_SUCH_SERVICE = "no such service"
    BUSY = "busy"
    DRAINING = "draining"
    KEY_REUSED = "key reused"
    DIARY = "diary"
    INVALID = "invalid"


class WorkerState(StrEnum):
    BOOTING = "booting"  # joined, has not yet said that it is free
    IDLE = "idle"  # has a free slot
    BUSY = "busy"  # every slot is taken
    UNPROVEN = "unproven"  # every slot is taken by attempts that ended without their result (D11)
    RESTING = "resting"  # holds nothing, would not take a job, and is offered none for a moment (R98)
    DETACHED = "detached"  # out of reach for the moment: gets nothing, and its lease runs on (R64)
    DRAINING = "draining"  # finishes what it holds and gets nothing more
    GONE = "gone"


# Members by name: in Python 3.11 looking one up on its class costs ten times a global, and states are asked for often.
WAITING: Final = JobState.WAITING
DELAYED: Final = JobState.DELAYED
RUNNING: Final = JobState.RUNNING
ENDED: Final = JobState.ENDED
DONE: Final = Outcome.DONE
FAILED: Final = Outcome.FAILED
TIMED_OUT: Final = Outcome.TIMED_OUT
LOST: Final = Outcome.LOST
CANCELLED: Final = Outcome.CANCELLED
REFUSED: Final = Outcome.REFUSED
BOOTING: Final = WorkerState.BOOTING
IDLE: Final = WorkerState.IDLE
BUSY: Final = WorkerState.BUSY
UNPROVEN: Final = WorkerState.UNPROVEN
RESTING: Final = WorkerState.RESTING
DETACHED: Final = WorkerState.DETACHED
DRAINING: Final = WorkerState.DRAINING
GONE: Final = WorkerState.GONE


class Farewell(StrEnum):
    """Why the broker let a worker go."""

    EXPIRED = "expired"  # its lease ran out
    DRAINED = "drained"  # it was drained and holds nothing any more
    KILLED = "killed"  # an operator wanted it gone at once
    STOPPED = "stopped"  # the broker ends, and may be started again

    @property
    def is_final(self) -> bool:
        """Whether the worker shall not come back."""
        return self in (Farewell.DRAINED, Farewell.KILLED)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a worker's dialect says about it. One object serves all workers of a listener."""

    lease: float = inf  # how long a silent worker is believed to live
    silent_while_busy: bool = False  # D5: then the job's own timeout is the only judge
    may_refuse: bool = False
    capacity: int = 1
    unproven_limit: float = 3_600.0  # how long an unproven worker is waited for (R36)
    detach_timeout: float = 60.0  # how long one is waited for that is out of reach and has no lease to run out (R64)
    may_return: bool = False  # it can name an attempt that it was given before the broker was started anew (R107)
    comes_back: bool = False  # told to go, it joins again at once: its dialect has no word that ends a worker
    ends_with_connection: bool = False  # its session hangs up on a silent one, and then says what never left (R8)
    job_timeout: float = inf  # how long a job without any limit may run here: the listener's, where workers are silent
    max_payload: int = 64 << 20  # bytes of a result, with the parts that came ahead of it
    attempts: int = 1  # D8: the attempts its dialect's document gives a job that did not bring a number

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity {self.capacity} is less than 1")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a job asks for. One object serves all jobs that ask for the same."""

    queue_timeout: float = inf  # waiting before a hand-out
    job_timeout: float = 60.0  # running time of one attempt; inf = none
    attempts: int | None = None  # None: the larger default of the caller's and the worker's dialect (D8)
    default_attempts: int = 1
    priority: int = DEFAULT_PRIORITY
    delay: float = 0.0
    waits: bool = False  # wait for a worker instead of `refused: no such service`
    durable: bool = False  # a background job: acknowledged when the diary has it
    retry_first: float | None = None  # R11: rest before the second attempt, doubled each time; None: the policy's
    retry_cap: float | None = None
    retry_jitter: float | None = None
    orphan_grace: float = 0.0  # how long a waiting call outlives its caller
    streams: bool = False  # parts of the result go to the caller as they come; else they are joined in front of it

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= HIGHEST_PRIORITY:
            raise ValueError(f"priority {self.priority} is not between 0 and {HIGHEST_PRIORITY}")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts {self.attempts} is less than 1")


class Parts:
    """The parts of a result that are kept until the rest of it comes."""

    __slots__ = ("kept", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[Payload] = []
        self.kept = 0  # bytes of these
        self.size = 0  # bytes of all that came: more than are kept if there was no room for them


class Attempt:
    """One handing-out of a job to a worker."""

    __slots__ = ("doubted", "due", "given", "is_sent", "job", "number", "parts", "token", "worker")

    def __init__(self, job: Job, number: int, token: Token, worker: Worker, given: float, due: float) -> None:
        self.job = job
        self.number = number
        self.token = token
        self.worker = worker
        self.given = given
        self.due = due  # when its run time is over
        self.is_sent = False  # the line has carried out its Give
        self.doubted = inf  # since when it has been over without a result (D11)
        self.parts: Parts | None = None  # of its result, for callers that take it whole

    @property
    def over_at(self) -> float:
        """When it has run for too long, or its caller's patience is over."""
        return min(self.due, self.job.deadline)

    def mark_sent(self) -> None:
        """The job has been handed to the connection of its worker."""
        self.is_sent = True

    def postpone(self) -> None:
        """Stop the run time until `begin`: the worker is asked first whether it takes the job."""
        self.due = inf

    def begin(self, now: float) -> None:
        """The job leaves us later than it was handed out: its run time begins now."""
        self.given = now
        self.due = now + self.worker.run_time(self.job)


class Reservation:
    """The next attempt of a background job that still waits, stored ahead of time (see reservations.py)."""

    __slots__ = ("is_committed", "made", "token")

    def __init__(self, token: Token, now: float) -> None:
        self.token = token
        self.made = now
        self.is_committed = False


@dataclass(frozen=True, slots=True)
class Ending:
    """How one attempt ended without a result: an entry of a job's history."""

    number: int
    worker: str
    outcome: Outcome
    reason: str


class Job(Queued):
    """A payload for a service, on its way to exactly one outcome."""

    __slots__ = (
        "alarm",
        "alarm_number",
        "arrival",
        "attempt",
        "callers",
        "created",
        "deadline",
        "deaths",
        "digest",
        "failure",
        "history",
        "id",
        "is_told",
        "keep_until",
        "key",
        "number",
        "orphan_due",
        "outcome",
        "owner",
        "payload",
        "quarantined",
        "queue_due",
        "reason",
        "refusals",
        "reservation",
        "result",
        "retried_as",
        "retry_of",
        "service",
        "spent",
        "start_at",
        "state",
        "tried",
        "wishes",
    )

    def __init__(
        self, id: JobId, service: Service, payload: Payload, callers: tuple[Caller, ...], wishes: Wishes, now: float
    ) -> None:
        self.id = id
        self.service = service
        self.payload: Payload = payload
        self.callers = callers
        self.wishes = wishes
        self.owner: Owner | None = None  # whose limits it counts for; None: nobody's
        self.state: JobState = WAITING
        self.created = now
        self.arrival = now  # when it began to wait: a delayed job does so later
        self.number = 0  # by which the diary knows it
        self.order = inf
        self.deadline = inf  # the caller's patience over everything
        self.queue_due = inf
        self.start_at = 0.0  # a delayed job: when it may wait for a worker
        self.orphan_due = inf
        self.keep_until = inf
        self.attempt: Attempt | None = None  # the current one, and the only one that may finish the job
        self.reservation: Reservation | None = None
        self.spent = 0  # attempts that a worker may have seen
        self.deaths = 0  # of these, how many ended with the worker's death
        self.refusals = 0  # hand-outs in a row that no worker can have seen
        self.tried: tuple[WorkerId, ...] = ()
        self.history: list[Ending] | None = None
        self.key: str | None = None
        self.digest = b""
        self.retry_of: JobId | None = None
        self.quarantined = False  # its attempts are spent, and it has not been retried
        self.retried_as: JobId | None = None  # the job that a retry made of it
        self.outcome: Outcome | None = None
        self.is_told = False  # of a kept outcome: its callers have been answered
        self.result: Payload = b""
        self.reason = ""
        self.failure: Failure | None = None  # its worker's error, where that worker's wire has room for one
        self.alarm = inf
        self.alarm_number = 0

    @property
    def priority(self) -> int:
        return self.wishes.priority

    @property
    def is_kept(self) -> bool:
        """Whether its outcome outlives its end, for somebody who comes back."""
        return self.wishes.durable or self.key is not None

    @property
    def is_archived(self) -> bool:
        """Whether it has ended and its outcome is being kept."""
        return 0.0 <= self.keep_until < inf

    def due(self) -> float:
        """When this job must be looked at next. One that runs is looked at with its worker."""
        state = self.state
        if state is RUNNING:
            return inf
        if state is WAITING:
            return min(self.queue_due, self.deadline, self.orphan_due)
        if state is DELAYED:
            return min(self.start_at, self.deadline, self.orphan_due)
        return self.keep_until


class Worker:
    """Somebody who does jobs: one life of it. A restart or a new connection is a new worker (D3)."""

    __slots__ = (
        "alarm",
        "alarm_number",
        "away_since",
        "held_back_until",
        "id",
        "name",
        "party",
        "recipient",
        "refused",
        "running",
        "seen",
        "services",
        "state",
        "stays",
        "terms",
        "unproven",
    )

    def __init__(self, id: WorkerId, recipient: Recipient, party: Any, name: str, terms: Terms, now: float) -> None:
        self.id = id
        self.recipient = recipient  # receives the effects that concern this worker
        self.party = party  # the session's own record of this worker
        self.name = name
        self.terms = terms
        self.services: tuple[Service, ...] = ()
        self.state: WorkerState = BOOTING
        self.seen = now
        self.running: dict[Token, Attempt] = {}
        self.unproven: dict[Token, Attempt] = {}  # ended without their result: each still takes a slot (D11)
        self.refused: Token | None = None  # the attempt that it would not take last
        self.stays = False  # once drained, it is not dismissed
        self.away_since = inf  # when it came out of reach (R64)
        self.held_back_until = 0.0  # R38: used last until then
        self.alarm = inf
        self.alarm_number = 0

    @property
    def free(self) -> int:
        return self.terms.capacity - len(self.running) - len(self.unproven)

    def run_time(self, job: Job) -> float:
        """Seconds that an attempt at this job may run. Nothing else judges a worker that is silent at work (D5)."""
        limit = job.wishes.job_timeout
        return limit if limit != inf or job.deadline != inf else self.terms.job_timeout

    def due(self) -> float:
        """When this worker, or something it runs, must be looked at next."""
        due = self.patience_over()
        for attempt in self.running.values():
            due = min(due, attempt.over_at)
        return due

    def patience_over(self) -> float:
        """When it is given up if nothing is heard of it. A life sign moves this, never a job's time (R6)."""
        lease = self.lease()
        due = min(self.seen + lease, self.unproven_since() + self.terms.unproven_limit)
        if self.away_since != inf and lease == inf:  # nothing else says for how long it is waited for
            due = min(due, self.away_since + self.terms.detach_timeout)
        return due

    def excuse(self, gap: float, now: float) -> None:
        """We were paused for so long, and it was not silent meanwhile (D13)."""
        self.seen = min(self.seen + gap, now)
        if self.away_since != inf:
            self.away_since = min(self.away_since + gap, now)
        for attempt in self.unproven.values():
            attempt.doubted = min(attempt.doubted + gap, now)

    def overdue(self, now: float) -> str:
        """What it is late with, now that it is due."""
        terms = self.terms
        if self.unproven_since() + terms.unproven_limit <= now:
            return f"it did not prove itself free within {terms.unproven_limit:g} s"
        if self.seen + self.lease() > now:
            return f"its worker was out of reach for {terms.detach_timeout:g} s"
        return f"its worker was silent for {terms.lease:g} s"

    def lease(self) -> float:
        """How long its silence is borne now (D5)."""
        terms = self.terms
        return inf if terms.silent_while_busy and (self.running or self.unproven) else terms.lease

    def unproven_since(self) -> float:
        """When its oldest slot in doubt came into doubt."""
        for attempt in self.unproven.values():
            return attempt.doubted
        return inf


class Service:
    """A name that callers ask for and workers offer."""

    __slots__ = (
        "done",
        "held_back",
        "held_back_until",
        "idle",
        "is_known",
        "jobs",
        "name",
        "owner",
        "paused",
        "paused_by",
        "queue",
        "ran",
        "undone",
        "waited",
        "workers",
    )

    def __init__(self, name: str, age_step: float) -> None:
        self.name = name
        self.queue: Queue[Job] = Queue(age_step)
        self.idle: OrderedDict[Worker, None] = OrderedDict()  # longest idle first (D7)
        self.held_back: OrderedDict[Worker, None] = OrderedDict()  # idle, but used last (R38)
        self.held_back_until = inf  # when the first of those may be trusted again
        self.workers = 0  # how many offer it, whatever their state
        self.jobs = 0  # how many are present, whatever their state
        self.paused = False
        self.paused_by = ""
        self.is_known = False  # a worker has offered it once
        self.owner: Owner | None = None  # who is charged for a name that only jobs use (R29)
        self.done = 0  # jobs that ended so
        self.undone = dict.fromkeys(Outcome, 0)  # and those that ended otherwise
        self.waited = Histogram()  # seconds before a first attempt
        self.ran = Histogram()  # seconds of an attempt

    def charge(self, owner: Owner) -> None:
        self.owner = owner
        owner.names += 1

    def discharge(self) -> None:
        """A worker offers it, or the last of its jobs has ended."""
        if self.owner is not None:
            self.owner.names -= 1
            self.owner = None

    @property
    def ended(self) -> dict[Outcome, int]:
        """Jobs by how they ended."""
        return self.undone | {DONE: self.done}


def is_name(name: str, max_bytes: int) -> bool:
    """1 to `max_bytes` bytes of UTF-8 without control characters."""
    return is_text(name) and 0 < len(name.encode()) <= max_bytes


def is_text(name: str) -> bool:
    """Whether it has a form in UTF-8, and no control characters."""
    return BARRED_FROM_NAMES.search(name) is None
