"""Requests and views of operations: the same types for HTTP, the native dialect and the command line.

Durations are in seconds, times are RFC 3339 texts. A job's id is 32 lower-case hex digits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, field

from dragoman.operations.field_types import DAY as DAY
from dragoman.operations.field_types import ID as ID
from dragoman.operations.field_types import JOB as JOB
from dragoman.operations.field_types import JOB_TIMEOUT as JOB_TIMEOUT
from dragoman.operations.field_types import LONGEST_WAIT as LONGEST_WAIT
from dragoman.operations.field_types import NAME as NAME
from dragoman.operations.field_types import After as After
from dragoman.operations.field_types import AfterFailure as AfterFailure
from dragoman.operations.field_types import Attempts as Attempts
from dragoman.operations.field_types import Base64 as Base64
from dragoman.operations.field_types import Delay as Delay
from dragoman.operations.field_types import Durability as Durability
from dragoman.operations.field_types import (
    DurabilityShown,
    HoldsKey,
    KeepShown,
    RowBroker,
    RowBrokers,
    Unanswered,
    UnansweredShards,
)
from dragoman.operations.field_types import ErrorKind as ErrorKind
from dragoman.operations.field_types import Input as Input
from dragoman.operations.field_types import Jitter as Jitter
from dragoman.operations.field_types import JobIdText as JobIdText
from dragoman.operations.field_types import JobTimeout as JobTimeout
from dragoman.operations.field_types import Keep as Keep
from dragoman.operations.field_types import Key as Key
from dragoman.operations.field_types import Moment as Moment
from dragoman.operations.field_types import OutcomeName as OutcomeName
from dragoman.operations.field_types import Parameters as Parameters
from dragoman.operations.field_types import Parent as Parent
from dragoman.operations.field_types import ParentShown as ParentShown
from dragoman.operations.field_types import PayloadKind as PayloadKind
from dragoman.operations.field_types import Priority as Priority
from dragoman.operations.field_types import Quantiles as Quantiles
from dragoman.operations.field_types import RecordedShown as RecordedShown
from dragoman.operations.field_types import RequestId as RequestId
from dragoman.operations.field_types import RetryDelay as RetryDelay
from dragoman.operations.field_types import RetryMaxDelay as RetryMaxDelay
from dragoman.operations.field_types import ScheduleName as ScheduleName
from dragoman.operations.field_types import ServiceName as ServiceName
from dragoman.operations.field_types import State as State
from dragoman.operations.field_types import Tenant as Tenant
from dragoman.operations.field_types import Text as Text
from dragoman.operations.field_types import Traceparent as Traceparent
from dragoman.operations.field_types import Unique as Unique
from dragoman.operations.field_types import WaitSeconds as WaitSeconds
from dragoman.operations.field_types import WorkerNumber as WorkerNumber


class OperationRequest(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base class of requests."""


class View(Struct, kw_only=True):
    """Base class of responses."""


# ---------------------------------------------------------------- jobs


class EnqueueRequest(OperationRequest):
    """A background job. Its payload is a field, or the bytes beside the request."""

    service: ServiceName
    payload: Text | None = None
    payload_base64: Base64 | None = None
    delay: Delay = 0.0
    not_before: Annotated[Moment | None, Meta(description="Earliest start, with its time zone.")] = None
    priority: Priority = 5
    attempts: Attempts = 3
    timeout: JobTimeout | None = JOB_TIMEOUT
    key: Key | None = None
    unique: Unique = "kept"
    keep: Keep | None = None
    retry_first: RetryDelay | None = None
    retry_cap: RetryMaxDelay | None = None
    retry_jitter: Jitter | None = None
    tenant: Tenant | None = None
    parent: Parent | None = None
    traceparent: Traceparent | None = None
    parameters: Parameters = ()
    after: After = ()
    after_failure: AfterFailure = "cancel"
    input: Input = "payload"
    request_id: RequestId | None = None


class JobRef(OperationRequest):
    id: JobIdText


class JobAct(JobRef):
    """An act on a job that is carried out once, however often its request is repeated."""

    request_id: RequestId | None = None


class ResultRequest(OperationRequest):
    """The id of a job, and the seconds to wait for its outcome."""

    id: JobIdText
    wait: WaitSeconds = 0.0


class AttemptView(View):
    """One attempt. `dialect` and `worker_id` are null if an earlier release of the broker stored it."""

    number: int
    worker: str
    outcome: OutcomeName | None = None
    reason: str = ""
    started: Moment | None = None
    ended: Moment | None = None
    dialect: str | None = None
    worker_id: int | None = None


class CallerView(View):
    """The client that submitted a job. `address` is its machine, or its user on this machine; empty: not known."""

    dialect: str
    address: str


class FailureView(View):
    """A worker's error; `detail` is its traceback. `permanent`: the worker has decided that the job is not retried."""

    type: str
    message: str
    detail: str
    permanent: bool = False


class PayloadView(View):
    """A payload or a progress report: its size in bytes, its kind, and its first bytes as `text` or as `base64`.

    A progress report is shown whole.
    """

    size: int
    kind: PayloadKind
    text: str | None = None
    base64: str | None = None


class ChildView(View):
    """A job that the handler of another one submitted."""

    id: JobIdText
    service: str
    state: State
    outcome: OutcomeName | None
    background: bool
    broker: RowBroker = UNSET


class JobView(View):
    id: JobIdText
    service: str
    state: State
    outcome: OutcomeName | None
    reason: str
    background: bool
    quarantined: bool
    priority: int
    attempts: list[AttemptView]
    max_attempts: int | None
    created: Moment
    not_before: Moment | None = None
    kept_until: Moment | None = None
    key: str | None = None
    tenant: str | None = None
    retry_of: JobIdText | None = None
    retried_as: JobIdText | None = None
    result: str | None = None
    result_base64: str | None = None
    error: FailureView | None = None
    started: Moment | None = None
    ended: Moment | None = None
    payload: PayloadView | None = None
    progress: PayloadView | None = None
    caller: Annotated[
        CallerView | None,
        Meta(description="Null for a run of a schedule, and if an earlier release of the broker stored the job."),
    ] = None
    waited: Annotated[float | None, Meta(description="Seconds from queueing to the first attempt.")] = None
    job_timeout: Annotated[float | None, Meta(description="Time limit of one attempt, in seconds.")] = None
    deadline: Annotated[Moment | None, Meta(description="Time at which the caller stops waiting.")] = None
    size: Annotated[int | None, Meta(description="Bytes of the payload, while it is kept.")] = None
    result_size: Annotated[int | None, Meta(description="Bytes of the result.")] = None
    recorded: RecordedShown = None
    parent: ParentShown = None
    traceparent: Annotated[str | None, Meta(description="Trace context of the submit.")] = None
    children: Annotated[
        list[ChildView],
        Meta(
            description="Jobs whose parent it is, newest first, at most 100, as far as they are known and visible. The "
            "operation `job` lists them, and no other does."
        ),
    ] = []
    more_children: Annotated[int, Meta(description="Number of visible children beyond those in the list.")] = 0
    unanswered: Unanswered = UNSET
    after: Annotated[list[JobIdText], Meta(description="Jobs and groups that it comes after.")] = []
    after_failure: Annotated[
        Literal["cancel", "run"] | None, Meta(description="Null for a job that comes after no other.")
    ] = None
    input: Annotated[
        Literal["payload", "result", "results"] | None, Meta(description="Null for a job that comes after no other.")
    ] = None
    group: Annotated[JobIdText | None, Meta(description="Id of its group.")] = None
    unique: Annotated[Unique | None, Meta(description="How long it holds its key; `null` without a key.")] = None
    holds_key: HoldsKey = None
    keep: KeepShown = None
    durability: DurabilityShown = None
    broker: RowBroker = UNSET


class OutcomeView(View):
    """The fields of a job's view that contain its outcome."""

    state: State
    outcome: OutcomeName | None = None
    reason: str = ""


# ---------------------------------------------------------------- services and workers


class EmptyRequest(OperationRequest):
    pass


class ServiceRef(OperationRequest):
    name: ServiceName


class PauseRequest(OperationRequest):
    name: ServiceName
    by: Annotated[str, Meta(min_length=1, max_length=128, description="Name and reason, shown as `paused_by`.")] = (
        "an operator"
    )


class PurgeRequest(OperationRequest):
    """A purge: cancels waiting, delayed and dependent jobs of a service, deletes the outcomes of ended ones."""

    name: ServiceName
    states: Annotated[
        tuple[Literal["waiting", "delayed", "dependent", "ended"], ...],
        Meta(description="States of the jobs to purge."),
    ] = ("waiting", "delayed", "dependent")
    request_id: RequestId | None = None


class PurgeView(View):
    name: str
    purged: int
    unanswered: Unanswered = UNSET
    unanswered_shards: UnansweredShards = UNSET


class LimitsView(View):
    """The limits of a service that hold, from an operator or from its workers. `authors`: by limit, who has set it."""

    max_running: Annotated[int | None, Meta(description="Most jobs that run at once; null: no limit.")] = None
    max_running_per_tenant: Annotated[
        int | None, Meta(description="Most jobs of one tenant that run at once; null: no limit.")
    ] = None
    rate: Annotated[str | None, Meta(description="Rate of starts, such as `100/min`; null: no limit.")] = None
    authors: dict[str, str] = {}
    reached: Annotated[
        str | None, Meta(description="Sentence about the limit for which its jobs wait now; null: for none.")
    ] = None


class ServiceView(View):
    name: str
    paused: bool
    paused_by: str
    waiting: int
    delayed: int
    running: int
    oldest: float
    workers: int
    idle: int
    ended: dict[str, int]
    paused_at: Annotated[Moment | None, Meta(description="Time of the pause; null if it is not paused.")] = None
    slots: Annotated[int, Meta(description="Jobs that its workers can run at the same time.")] = 0
    arrived: Annotated[float | None, Meta(description="Jobs that arrive, per second; null if not known.")] = None
    dependent: Annotated[int, Meta(description="Jobs that wait for other jobs.")] = 0
    done: Annotated[float | None, Meta(description="Jobs that end `done`, per second; null if not known.")] = None
    undone: Annotated[float | None, Meta(description="Jobs that end otherwise, per second; null if not known.")] = None
    wait: Annotated[Quantiles, Meta(description="Seconds from queueing to the first attempt: p50, p95, p99.")] = field(
        default_factory=lambda: [None, None, None]
    )
    run: Annotated[Quantiles, Meta(description="Seconds of an attempt: p50, p95, p99.")] = field(
        default_factory=lambda: [None, None, None]
    )
    dialects: Annotated[list[str], Meta(description="Dialects of its workers.")] = []
    need: Annotated[int, Meta(description="Need of attention: services with the highest number come first.")] = 0
    limits: Annotated[LimitsView | None, Meta(description="Its limits; null if it has none.")] = None
    parameters: Annotated[
        dict[str, Any] | None,
        Meta(
            description="Parameters that its workers have declared, as a JSON Schema object; where they differ, those "
            "of the latest worker. Null in lists, and if there are none."
        ),
    ] = None
    brokers: RowBrokers = UNSET
    unanswered: Unanswered = UNSET


class WorkerRef(OperationRequest):
    id: WorkerNumber


class DrainRequest(OperationRequest):
    id: WorkerNumber
    now: Annotated[
        bool, Meta(description="Do not wait for its jobs: they are given to other workers, or end as lost.")
    ] = False


class HeldJobView(View):
    """A job that a worker runs. `due`: time at which the attempt times out."""

    job: JobIdText
    service: str
    attempt: int
    since: Moment
    due: Moment | None


class WorkerView(View):
    id: int
    name: str
    dialect: str
    state: str
    services: list[str]
    capacity: int
    running: list[JobIdText]
    stuck: int
    comes_back: bool
    silent: float
    lease: float | None
    listener: Annotated[str, Meta(description="URL of the listener, without its options.")] = ""
    address: Annotated[str, Meta(description="Address of its connection, or its process.")] = ""
    since: Annotated[Moment | None, Meta(description="Time at which it joined.")] = None
    done: Annotated[int | None, Meta(description="Attempts with a result; null if it has services not to be seen.")] = 0
    undone: Annotated[int | None, Meta(description="Attempts that failed, timed out or were lost; null likewise.")] = 0
    pace: Annotated[
        float | None,
        Meta(
            description="Recent run time of its attempts as a multiple of the median of its service. Null if it has "
            "several services, is the only worker of its service, or has done nothing yet."
        ),
    ] = None
    holds: list[HeldJobView] = []
    broker: RowBroker = UNSET


# ---------------------------------------------------------------- schedules


class ScheduleRequest(OperationRequest):
    """A schedule: a cron expression or an interval, exactly one of the two, and the job that each run enqueues."""

    name: ScheduleName
    service: ServiceName
    cron: Annotated[
        str | None, Meta(description="Cron expression: minute, hour, day of the month, month, day of the week.")
    ] = None
    every: Annotated[
        Annotated[float, Meta(ge=1, le=366 * DAY)] | None,
        Meta(description="Interval in seconds, instead of a cron expression."),
    ] = None
    timezone: Annotated[str, Meta(description="Time zone of the cron expression.")] = "UTC"
    overlap: Annotated[bool, Meta(description="Enqueue a job even if the last one has not ended.")] = False
    paused: Annotated[bool, Meta(description="Enqueue no jobs until the schedule is resumed.")] = False
    payload: Text | None = None
    payload_base64: Base64 | None = None
    priority: Priority = 5
    attempts: Attempts = 3
    timeout: JobTimeout | None = JOB_TIMEOUT
    retry_first: RetryDelay | None = None
    retry_cap: RetryMaxDelay | None = None
    retry_jitter: Jitter | None = None
    tenant: Tenant | None = None
    keep: Keep | None = None


class ScheduleRef(OperationRequest):
    name: ScheduleName


class ScheduleAct(ScheduleRef):
    """An act on a schedule that is carried out once, however often its request is repeated."""

    request_id: RequestId | None = None


class ScheduleView(View):
    name: str
    service: str
    cron: str | None
    every: float | None
    timezone: str
    overlap: bool
    paused: bool
    next: Moment | None
    last: Moment | None
    last_job: JobIdText | None
    runs: int
    skipped: int
    owner: Annotated[str, Meta(description="Principal that set the schedule. It owns the jobs of all runs.")] = "local"
    paused_reason: Annotated[str, Meta(description="Reason, if the broker itself has paused the schedule.")] = ""
    says: Annotated[str, Meta(description="The cron expression or the interval in words.")] = ""
    recent: Annotated[
        str,
        Meta(
            description="The latest 20 runs that ended or were skipped, oldest first. One letter each: d done, "
            "f failed, t timed out, l lost, c cancelled, r refused, s skipped."
        ),
    ] = ""
    last_took: Annotated[float | None, Meta(description="Run time of the run that ended last, in seconds.")] = None
    broker: RowBroker = UNSET


class SchedulesView(View):
    schedules: list[ScheduleView]
    unanswered: Unanswered = UNSET
    unanswered_shards: UnansweredShards = UNSET


# ---------------------------------------------------------------- the broker


class AccessView(View):
    """Changes of a reload: names of principals, and the number of connections that were closed."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    disconnected: int


class HealthView(View):
    """State of the broker. The numbers are null for a client without `see` over all services."""

    ready: bool
    problems: list[str]
    version: str
    jobs: int | None
    workers: int | None
    peers: int | None
    draining: bool
    loading: bool
    degraded: list[str] = field(default_factory=list)  # shards that do not work, while others accept new jobs
    replicas: str = ""  # NATS servers that are away, while the others still store what is accepted; empty: none


class ErrorView(View):
    """An error: `kind` for programs, `detail` for people."""

    kind: ErrorKind
    detail: str


class OperationError(Exception):
    """An operation that was not executed, with the error to return."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = ErrorView(kind=kind, detail=detail)  # type: ignore[arg-type]
