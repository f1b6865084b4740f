"""Requests and views of operations: the same types for HTTP, the native dialect and the command line.

Durations are in seconds, times are RFC 3339 texts. A job's id is 32 lower-case hex digits.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

DAY = 86_400.0
MOST_ATTEMPTS = 100
JOB_TIMEOUT = 60.0  # seconds
LONGEST_WAIT = 3_600.0  # seconds

ID = "^[0-9a-f]{32}$"
NAME = r"^[^\x00-\x1f\x7f-\x9f]+$"  # no control characters
JOB = "0197f3a2c4d87b12a9e05c61f38d2b74"

JobIdText = Annotated[str, Meta(pattern=ID, description="Job id: 32 lower-case hex digits.", examples=[JOB])]
ServiceName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=NAME,
        description="Service name: 1 to 128 bytes of UTF-8 without control characters, case-sensitive.",
        examples=["resize"],
    ),
]
WorkerNumber = Annotated[int, Meta(ge=0, le=2**53, description="Worker id: a number, as in the list of workers.")]
ScheduleName = Annotated[str, Meta(min_length=1, max_length=128, description="Schedule name.")]
Key = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        pattern=NAME,
        description="Idempotency key. A second submit with the same key and payload returns the first job.",
        examples=["invoice-42"],
    ),
]
Text = Annotated[str, Meta(description="Payload as text, encoded as UTF-8.", examples=["hello"])]
Base64 = Annotated[
    str,
    Meta(
        description="Payload as base64, for arbitrary bytes.",
        examples=["aGVsbG8="],
        extra_json_schema={"contentEncoding": "base64"},
    ),
]
Priority = Annotated[
    int,
    Meta(ge=0, le=9, description="Priority; jobs with a higher one start first. One step equals a minute of waiting."),
]
Attempts = Annotated[
    int, Meta(ge=1, le=MOST_ATTEMPTS, description="Maximum number of attempts before the job goes into quarantine.")
]
JobTimeout = Annotated[
    float,
    Meta(
        gt=0,
        le=DAY,
        description="Time limit of one attempt, in seconds; `null`: no limit.",
        examples=[30],
    ),
]
Delay = Annotated[float, Meta(ge=0, le=30 * DAY, description="Earliest start, in seconds from now.")]
Moment = Annotated[datetime, Meta(tz=True, description="Time in RFC 3339 format.")]
RetryDelay = Annotated[
    float,
    Meta(
        ge=0,
        le=DAY,
        description="Delay before the second attempt, in seconds; it doubles with each further attempt. By default the "
        "broker's setting.",
    ),
]
RetryMaxDelay = Annotated[
    float,
    Meta(ge=0, le=DAY, description="Longest delay between two attempts, in seconds. By default the broker's setting."),
]
Jitter = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        description="Random fraction that is added to or subtracted from each retry delay. By default the broker's "
        "setting.",
    ),
]
WaitSeconds = Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the outcome.")]

State = Literal["waiting", "delayed", "running", "ended"]
PayloadKind = Literal["text", "JSON", "pickle", "bytes"]
OutcomeName = Literal["done", "failed", "timed out", "lost", "cancelled", "refused"]
ErrorKind = Literal[
    "not found",
    "invalid",
    "conflict",
    "busy",
    "draining",
    "loading",
    "store unavailable",
    "key reused",
    "no such service",
    "forbidden",
    "too large",
    "internal",
]


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
    retry_first: RetryDelay | None = None
    retry_cap: RetryMaxDelay | None = None
    retry_jitter: Jitter | None = None


class JobRef(OperationRequest):
    id: JobIdText


class ResultRequest(OperationRequest):
    """The id of a job, and the seconds to wait for its outcome."""

    id: JobIdText
    wait: WaitSeconds = 0.0


class ListJobsRequest(OperationRequest):
    service: Annotated[ServiceName | None, Meta(description="Only jobs of this service.")] = None
    state: Annotated[State | None, Meta(description="Only jobs in this state.")] = None
    outcome: Annotated[OutcomeName | None, Meta(description="Only jobs with this outcome.")] = None
    quarantined: Annotated[
        bool | None, Meta(description="Only jobs in quarantine (true), or only jobs that are not (false).")
    ] = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Maximum number of jobs.")] = 100
    after: Annotated[JobIdText | None, Meta(description="Only jobs older than this one.")] = None


class AttemptView(View):
    number: int
    worker: str
    outcome: OutcomeName | None = None
    reason: str = ""
    started: Moment | None = None
    ended: Moment | None = None


class FailureView(View):
    """A worker's error; `detail` is its traceback."""

    type: str
    message: str
    detail: str


class PayloadView(View):
    """A payload or a progress report: its size in bytes, its kind, and its first bytes as `text` or as `base64`.

    A progress report is shown whole.
    """

    size: int
    kind: PayloadKind
    text: str | None = None
    base64: str | None = None


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
    retry_of: JobIdText | None = None
    retried_as: JobIdText | None = None
    result: str | None = None
    result_base64: str | None = None
    error: FailureView | None = None
    started: Moment | None = None
    ended: Moment | None = None
    payload: PayloadView | None = None
    progress: PayloadView | None = None
    recorded: Annotated[
        Literal["messages", "milestones"] | None, Meta(description="Source of its ladder; `null`: not recorded so far.")
    ] = None


class OutcomeView(View):
    """The fields of a job's view that contain its outcome."""

    state: State
    outcome: OutcomeName | None = None
    reason: str = ""


class JobsView(View):
    jobs: list[JobView]
    after: JobIdText | None = None


class WhyView(View):
    id: JobIdText
    why: str


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
    """A purge: cancels waiting and delayed jobs of a service, deletes the outcomes of ended ones."""

    name: ServiceName
    states: Annotated[
        tuple[Literal["waiting", "delayed", "ended"], ...], Meta(description="States of the jobs to purge.")
    ] = ("waiting", "delayed")


class PurgeView(View):
    name: str
    purged: int


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


class ServicesView(View):
    services: list[ServiceView]


class WorkerRef(OperationRequest):
    id: WorkerNumber


class DrainRequest(OperationRequest):
    id: WorkerNumber
    now: Annotated[
        bool, Meta(description="Do not wait for its jobs: they are given to other workers, or end as lost.")
    ] = False


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


class WorkersView(View):
    workers: list[WorkerView]


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


class ScheduleRef(OperationRequest):
    name: ScheduleName


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


class SchedulesView(View):
    schedules: list[ScheduleView]


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


class ErrorView(View):
    """An error: `kind` for programs, `detail` for people."""

    kind: ErrorKind
    detail: str


class OperationError(Exception):
    """An operation that was not executed, with the error to return."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = ErrorView(kind=kind, detail=detail)  # type: ignore[arg-type]
