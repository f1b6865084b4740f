"""The data model: callers, jobs, workers, attempts, services. Read this file and you know the system.

A *caller* submits a *job* to a *service*. The broker dispatches the job to a *worker* that offers the service. Each
dispatch is an *attempt*, and only the current one may finish its job (D2). A job ends in exactly one *outcome* (D4).

States are defined in `states.py` and assigned only in `lifecycle.py`; options of jobs and workers are in `options.py`.
Times are seconds on a clock that the caller of the core reads.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from dragoman.core.conversation import Conversation, WorkerConversation
from dragoman.core.fair_queue import FairQueue
from dragoman.core.idle import IdleList
from dragoman.core.ids import JobId as JobId
from dragoman.core.ids import Token as Token
from dragoman.core.ids import WorkerId as WorkerId
from dragoman.core.infinity import inf
from dragoman.core.options import UNLIMITED_REQUESTS, JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.parts import Parts
from dragoman.core.parts import Payload as Payload
from dragoman.core.rare_facts import RareFacts, WithRareFacts
from dragoman.core.recipients import Recipient, RemoteWorker, dialect_of
from dragoman.core.rights import Principal
from dragoman.core.service_status import JobTotals, ServiceStatus
from dragoman.core.states import DELAYED, RUNNING, STARTING, WAITING, AttemptRecord, JobState, Outcome, WorkerState
from dragoman.core.work_record import WorkRecord

# Placeholder for a payload that is only in the store. It is fetched before the job is sent. Compare with `is`.
ABSENT: Final[Payload] = bytearray()


@mypyc_attr(allow_interpreted_subclasses=True)
class Caller:
    """A party that submits jobs and receives their outcomes. A broker side creates it; a subclass may add fields.

    It owns its open jobs: those that it has submitted or joined, and whose outcome has not been delivered. The core
    adds them; the code that delivers an outcome calls `remove_job`. Most callers have one job at a time, so the first
    has a field.
    """

    __slots__ = ("dialect", "job", "more_jobs", "owner", "recipient")

    def __init__(self, recipient: Recipient, owner: Owner) -> None:
        self.recipient = recipient
        self.dialect = dialect_of(recipient)
        self.owner = owner  # of its jobs: its principal, and the limits of a caller
        self.job: Job | None = None  # the open job of a caller that has one at a time
        self.more_jobs: dict[JobId, Job] | None = None  # open jobs that were added while `job` was set

    @final
    def belong_to(self, owner: Owner) -> None:
        """Set the owner of the jobs that follow: who it is was proven, or it continues on another connection."""
        self.owner = owner

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
        """Remove a job whose outcome has been delivered. None: its submit was refused."""
        if job is None:
            return
        more = self.more_jobs
        if self.job is job:
            self.job = None
        elif more is not None and more.get(job.id) is job:
            del more[job.id]

    @final
    def open_job(self, id: JobId) -> Job | None:
        """Return the open job with this id; of two, the one that was added last."""
        more = self.more_jobs
        if more is not None:
            job = more.get(id)
            if job is not None:
                return job
        job = self.job
        return job if job is not None and job.id == id else None

    @final
    def open_jobs(self) -> list[Job]:
        """Return all open jobs, in the order in which they were added."""
        jobs = [] if self.job is None else [self.job]
        if self.more_jobs is not None:
            jobs += self.more_jobs.values()
        return jobs

    @final
    def count_open(self) -> int:
        return (self.job is not None) + (0 if self.more_jobs is None else len(self.more_jobs))


class Attempt:
    """One dispatch of a job to a worker."""

    __slots__ = ("due", "given", "is_sent", "job", "number", "parts", "stuck_since", "token", "worker")

    def __init__(self, job: Job, number: int, token: Token, worker: Worker, given: float, due: float) -> None:
        self.job = job
        self.number = number
        self.token = token
        self.worker = worker
        self.given = given
        self.due = due  # time at which it times out
        self.is_sent = False  # the runner has executed its SendJob
        self.stuck_since = inf  # time at which it ended without a result (D11)
        self.parts: Parts | None = None  # parts of its result, for callers that receive it whole

    @property
    def over_at(self) -> float:
        """Time at which it must end: its own time-out, or the caller's deadline."""
        return min(self.due, self.job.deadline)

    def mark_sent(self) -> None:
        """Record that the job was passed to its worker's connection."""
        self.is_sent = True

    def postpone(self) -> None:
        """Stop the run time until `begin`: the worker has not accepted the job yet."""
        self.due = inf

    def begin(self, now: float) -> None:
        """Start the run time now: the job is sent later than it was dispatched."""
        self.given = now
        self.due = now + self.worker.run_time(self.job)

    def extend(self, seconds: float, now: float) -> None:
        """Let the run time end in this many seconds from now (R134)."""
        self.due = now + seconds


class Job(WithRareFacts):
    """A payload for a service. It ends in exactly one outcome. Facts that few jobs have are in `rare_facts.py`."""

    # fmt: off
    __slots__ = (
        "alarm", "alarm_number", "arrival", "attempt", "caller_dialect", "callers", "conversation", "created",
        "deadline", "digest", "history", "id", "is_told", "keep_until", "key", "number", "orphan_due", "outcome",
        "payload", "quarantined", "queue_due", "reason", "result", "service", "spent", "start_at", "state", "tried",
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
        owner: Owner,
    ) -> None:
        self.id = id
        self.service = service
        self.payload: Payload = payload
        self.callers = callers
        self.caller_dialect = callers[0].dialect if callers else ""  # "": not known
        self.options = job_options
        self.owner = owner
        self.state: JobState = WAITING
        self.created = now
        self.arrival = now  # time at which it was queued; for a delayed job that is after `created`
        self.number = 0  # its key in the store
        self.order = inf
        self.deadline = inf  # time at which the caller stops waiting; covers queueing, all attempts and retry delays
        self.queue_due = inf  # time at which it times out in the queue; of a dependent job: at which it is decided
        self.start_at = 0.0  # time at which a delayed job may be dispatched
        self.orphan_due = inf
        self.keep_until = inf
        self.attempt: Attempt | None = None  # the current one; only it may finish the job
        self.conversation: Conversation | None = None  # its messages, if they are recorded
        self._rare: RareFacts | None = None
        self.spent = 0  # attempts that a worker may have seen
        self.tried: tuple[WorkerId, ...] = ()
        self.history: list[AttemptRecord] | None = None
        self.key: str | None = None
        self.digest = b""
        self.quarantined = False  # its attempts are used up, and it has not been retried
        self.outcome: Outcome | None = None
        self.is_told = False  # the kept outcome has been delivered to its callers
        self.result: Payload = b""
        self.reason = ""
        self.alarm = inf
        self.alarm_number = 0

    @property
    def priority(self) -> int:
        return self.options.priority

    @property
    def principal(self) -> Principal:
        return self.owner.principal

    @property
    def is_kept(self) -> bool:
        """True if its outcome is kept after its end, for later requests."""
        return self.options.durable or self.key is not None

    @property
    def outlives_end(self) -> bool:
        """For an ended, kept job: whether its outcome stays in the registry (R136)."""
        return self.options.keep != 0.0 or self.quarantined or self.retried_as is not None

    @property
    def is_archived(self) -> bool:
        """True if it has ended and its outcome is kept."""
        return 0.0 <= self.keep_until < inf

    def due(self) -> float:
        """Time at which expiry must check this job. A running job is checked with its worker."""
        state = self.state
        if state is RUNNING:
            return inf
        if state is DELAYED:
            return min(self.start_at, self.deadline, self.orphan_due)
        if self.outcome is None:  # it waits, in its queue or for other jobs
            return min(self.queue_due, self.deadline, self.orphan_due)
        return self.keep_until


class Worker(WorkRecord):
    """A worker, from joining to leaving. After a restart or on a new connection it is a new worker (D3)."""

    # fmt: off
    __slots__ = (
        "alarm", "alarm_number", "asked", "away_since", "conversation", "held_back_until", "id", "is_behind",
        "last_held", "name", "origin", "owner", "profile", "recipient", "refused", "remote", "running", "seen",
        "services", "state", "stays", "stuck", "unsent",
    )
    # fmt: on

    def __init__(
        self,
        id: WorkerId,
        recipient: Recipient,
        remote: RemoteWorker | None,
        name: str,
        profile: WorkerProfile,
        now: float,
        owner: Owner,
    ) -> None:
        super().__init__(now)
        self.id = id
        self.recipient = recipient
        self.owner = owner
        self.remote = remote  # the broker side's record of this worker; None: not connected to this run
        self.name = name
        self.origin: str | None = None  # label of the connection it joined by; None: it joined an earlier run
        self.profile = profile
        self.services: tuple[Service, ...] = ()
        self.state: WorkerState = STARTING
        self.seen = now
        self.asked = 0 if profile.pulls else UNLIMITED_REQUESTS  # number of jobs that it still requests (R131)
        self.unsent = 0  # bytes that wait to be sent to it, when they were last counted; 0: it got no large job
        self.is_behind = False  # it has not taken enough of them: it gets no job until it has
        self.running: dict[Token, Attempt] = {}
        self.stuck: dict[Token, Attempt] = {}  # attempts that ended without a result; each still takes a slot (D11)
        self.last_held: Attempt | None = None  # set when it leaves: the attempt that it held
        self.refused: Token | None = None  # the last attempt that it declined
        self.stays = False  # it is not removed after it has drained
        self.away_since = inf  # time at which it was detached (R64)
        self.held_back_until = 0.0  # R38: until then it is chosen last
        self.conversation: WorkerConversation | None = None  # its messages, while they are requested
        self.alarm = inf
        self.alarm_number = 0

    @property
    def free(self) -> int:
        return self.profile.capacity - len(self.running) - len(self.stuck)

    def held(self) -> Attempt | None:
        """Return the attempt that a worker with one slot was sent and has not finished, current or not."""
        for attempt in self.running.values():
            if attempt.is_sent:
                return attempt
        for attempt in self.stuck.values():
            return attempt
        return self.last_held

    def forget_remote(self) -> None:
        """Forget the broker side's record of it, and the attempt that it held: it has left, and they refer to it."""
        self.remote = self.last_held = None

    def find(self, token: Token) -> Attempt | None:
        """Return the attempt with this token that it was sent and has not finished, current or not."""
        return self.running.get(token) or self.stuck.get(token)

    def run_time(self, job: Job) -> float:
        """Return the seconds that an attempt at this job may run. No other limit ends one of a silent worker (D5)."""
        limit = job.options.job_timeout
        return limit if limit != inf or job.deadline != inf else self.profile.job_timeout


class Service(ServiceStatus):
    """A name that callers request and workers offer. Its pause and its numbers are in `service_status.py`."""

    __slots__ = ("held_back", "held_back_until", "idle", "is_known", "name", "owner", "queue", "workers")

    def __init__(self, name: str, priority_step: float, totals: JobTotals | None = None) -> None:
        super().__init__(totals or JobTotals())
        self.name = name
        self.queue: FairQueue[Job] = FairQueue(priority_step, name, self.totals)
        self.idle: IdleList[Worker] = IdleList()
        self.held_back: IdleList[Worker] = IdleList()  # idle, but chosen last (R38)
        self.held_back_until = inf  # time at which the first of those is chosen normally again
        self.workers = 0  # workers that offer it, in any state
        self.is_known = False  # a worker has offered it at least once
        self.owner: Owner | None = None  # charged for a name that only jobs use (R29)

    def charge(self, owner: Owner) -> None:
        self.owner = owner
        owner.names += 1

    def discharge(self) -> None:
        """Stop charging the owner: a worker offers the service, or its last job has ended."""
        if self.owner is not None:
            self.owner.names -= 1
            self.owner = None

    @property
    def running(self) -> int:
        """Number of running jobs: those present that neither wait nor are delayed or dependent."""
        return self.jobs - self.queue.length - self.delayed - self.dependent
