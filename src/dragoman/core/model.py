"""The data model: callers, jobs, workers, attempts, services. Read this file and you know the system.

A *caller* submits a *job* to a *service*. A *worker* that offers the service is given the job: one such handing-out is
an *attempt*, and only the current attempt may finish its job (D2). A job ends in exactly one *outcome* (D4).

Their states are in `states.py`, the options of jobs and workers in `options.py`. States are assigned
in `lifecycle.py` and nowhere else. Times are seconds on a clock that somebody else reads.
"""

from __future__ import annotations

from typing import Final, NewType, final

from mypy_extensions import mypyc_attr

from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.idle import IdleList
from dragoman.core.infinity import inf
from dragoman.core.options import ALWAYS_ASKS, JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.parts import Parts
from dragoman.core.parts import Payload as Payload
from dragoman.core.queues import Queue, Queued
from dragoman.core.recipients import Recipient, RemoteWorker
from dragoman.core.states import (
    DELAYED,
    DONE,
    RUNNING,
    STARTING,
    WAITING,
    AttemptRecord,
    JobState,
    Outcome,
    WorkerState,
)

JobId = NewType("JobId", bytes)  # 16 bytes in UUIDv7 layout, shown as 32 lower-case hex digits
WorkerId = NewType("WorkerId", int)
Token = NewType("Token", bytes)  # 16 random bytes that name one attempt

# In the place of bytes that only the diary has: they are fetched before anybody is given them. Compared by identity.
ABSENT: Final[Payload] = bytearray()


@mypyc_attr(allow_interpreted_subclasses=True)
class Caller:
    """A party that submits jobs and receives their outcomes. A session makes it, and may add what its wire needs.

    It owns its open jobs: those that it has submitted or joined, and whose outcome it has not been told. The core adds
    them; who delivers an outcome calls `remove_job`. Most callers have one job at a time, so the first is in a field.
    """

    __slots__ = ("job", "more_jobs", "principal", "recipient")

    def __init__(self, recipient: Recipient) -> None:
        self.recipient = recipient  # receives the effects that concern this caller
        self.principal: object | None = None  # the authenticated identity; None: callers are not authenticated
        self.job: Job | None = None  # the open job of a caller that has one at a time
        self.more_jobs: dict[JobId, Job] | None = None  # open jobs that were added while there was another

    @final
    def add_job(self, job: Job) -> None:
        more = self.more_jobs
        if self.job is None and not more:
            self.job = job
        elif more is None:
            self.more_jobs = {job.id: job}
        else:
            more[job.id] = job

    @final
    def remove_job(self, job: Job | None) -> None:
        """The outcome of this job has been delivered. None: its submit was refused."""
        if job is None:
            return
        more = self.more_jobs
        if self.job is job:
            self.job = None
        elif more is not None and more.get(job.id) is job:
            del more[job.id]

    @final
    def open_job(self, id: JobId) -> Job | None:
        """The open job with this id; of two, the one that was added last."""
        more = self.more_jobs
        if more is not None:
            job = more.get(id)
            if job is not None:
                return job
        job = self.job
        return job if job is not None and job.id == id else None

    @final
    def open_jobs(self) -> list[Job]:
        """All open jobs, in the order in which they were added."""
        jobs = [] if self.job is None else [self.job]
        if self.more_jobs is not None:
            jobs += self.more_jobs.values()
        return jobs

    @final
    def count_open(self) -> int:
        return (self.job is not None) + (0 if self.more_jobs is None else len(self.more_jobs))


class Attempt:
    """One handing-out of a job to a worker."""

    __slots__ = ("due", "given", "is_sent", "job", "number", "parts", "stuck_since", "token", "worker")

    def __init__(self, job: Job, number: int, token: Token, worker: Worker, given: float, due: float) -> None:
        self.job = job
        self.number = number
        self.token = token
        self.worker = worker
        self.given = given
        self.due = due  # when its run time is over
        self.is_sent = False  # the line has carried out its Give
        self.stuck_since = inf  # since when it has been over without a result (D11)
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

    def extend(self, seconds: float, now: float) -> None:
        """Its run time is over in so many seconds from now (R134)."""
        self.due = now + seconds


class Job(Queued):
    """A payload for a service, on its way to exactly one outcome."""

    # fmt: off
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
        "options",
        "orphan_due",
        "outcome",
        "owner",
        "payload",
        "quarantined",
        "queue_due",
        "reason",
        "refusals",
        "result",
        "retried_as",
        "retry_of",
        "service",
        "spent",
        "start_at",
        "state",
        "tried",
    )
    # fmt: on

    def __init__(
        self,
        id: JobId,
        service: Service,
        payload: Payload,
        callers: tuple[Caller, ...],
        job_options: JobOptions,
        now: float,
    ) -> None:
        self.id = id
        self.service = service
        self.payload: Payload = payload
        self.callers = callers
        self.options = job_options
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
        self.spent = 0  # attempts that a worker may have seen
        self.deaths = 0  # of these, how many ended with the worker's death
        self.refusals = 0  # hand-outs in a row that no worker can have seen
        self.tried: tuple[WorkerId, ...] = ()
        self.history: list[AttemptRecord] | None = None
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
        return self.options.priority

    @property
    def is_kept(self) -> bool:
        """Whether its outcome outlives its end, for somebody who comes back."""
        return self.options.durable or self.key is not None

    @property
    def outlives_end(self) -> bool:
        """Of a job that has ended and is kept: whether anything of it is kept from now on (R136)."""
        return self.options.keeps_outcome or self.quarantined or self.retried_as is not None

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
        "asked",
        "away_since",
        "held_back_until",
        "id",
        "last_held",
        "name",
        "origin",
        "profile",
        "recipient",
        "refused",
        "remote",
        "running",
        "seen",
        "services",
        "state",
        "stays",
        "stuck",
    )

    def __init__(
        self,
        id: WorkerId,
        recipient: Recipient,
        remote: RemoteWorker | None,
        name: str,
        profile: WorkerProfile,
        now: float,
    ) -> None:
        self.id = id
        self.recipient = recipient  # receives the effects that concern this worker
        self.remote = remote  # the session's own record of this worker; None: nobody is there
        self.name = name
        self.origin: str | None = None  # label of the connection it joined by; None: an earlier run let it in
        self.profile = profile
        self.services: tuple[Service, ...] = ()
        self.state: WorkerState = STARTING
        self.seen = now
        self.asked = 0 if profile.pulls else ALWAYS_ASKS  # jobs that it still waits for (R131)
        self.running: dict[Token, Attempt] = {}
        self.stuck: dict[Token, Attempt] = {}  # ended without their result: each still takes a slot (D11)
        self.last_held: Attempt | None = None  # once it has gone: what it held then
        self.refused: Token | None = None  # the attempt that it would not take last
        self.stays = False  # once drained, it is not dismissed
        self.away_since = inf  # when it came out of reach (R64)
        self.held_back_until = 0.0  # R38: used last until then
        self.alarm = inf
        self.alarm_number = 0

    @property
    def free(self) -> int:
        return self.profile.capacity - len(self.running) - len(self.stuck)

    def held(self) -> Attempt | None:
        """The attempt that a worker of one slot was sent and has not answered, current or not."""
        for attempt in self.running.values():
            if attempt.is_sent:
                return attempt
        for attempt in self.stuck.values():
            return attempt
        return self.last_held

    def find(self, token: Token) -> Attempt | None:
        """The attempt with this token that it was given and has not answered, current or not."""
        return self.running.get(token) or self.stuck.get(token)

    def run_time(self, job: Job) -> float:
        """Seconds that an attempt at this job may run. Nothing else judges a worker that is silent at work (D5)."""
        limit = job.options.job_timeout
        return limit if limit != inf or job.deadline != inf else self.profile.job_timeout


class Service:
    """A name that callers ask for and workers offer."""

    # fmt: off
    __slots__ = (
        "done", "held_back", "held_back_until", "idle", "is_known", "jobs", "name", "owner", "paused", "paused_by",
        "queue", "ran", "undone", "waited", "workers",
    )
    # fmt: on

    def __init__(self, name: str, priority_step: float) -> None:
        self.name = name
        self.queue: Queue[Job] = Queue(priority_step)
        self.idle: IdleList[Worker] = IdleList()
        self.held_back: IdleList[Worker] = IdleList()  # idle, but used last (R38)
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
