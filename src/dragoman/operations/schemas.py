"""What is asked and what is answered, as data: the same for HTTP, for the native dialect and for the command line.

Times are seconds, or moments as RFC 3339 writes them. A job's id is 32 lower-case hex digits.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

DAY = 86_400.0
MOST_ATTEMPTS = 100
JOB_TIMEOUT = 60.0  # seconds

ID = "^[0-9a-f]{32}$"
NAME = r"^[^\x00-\x1f\x7f-\x9f]+$"  # no control characters
JOB = "0197f3a2c4d87b12a9e05c61f38d2b74"

JobIdText = Annotated[str, Meta(pattern=ID, description="A job's id: 32 lower-case hex digits.", examples=[JOB])]
ServiceName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        pattern=NAME,
        description="A service's name: 1 to 128 bytes of UTF-8 without control characters; case matters.",
        examples=["resize"],
    ),
]
Key = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        pattern=NAME,
        description="A second order of this service with the same key and payload joins the first job.",
        examples=["invoice-42"],
    ),
]
Text = Annotated[str, Meta(description="The payload, as text: its UTF-8 bytes.", examples=["hello"])]
Base64 = Annotated[
    str,
    Meta(
        description="The payload, any bytes, in base64.",
        examples=["aGVsbG8="],
        extra_json_schema={"contentEncoding": "base64"},
    ),
]
Priority = Annotated[int, Meta(ge=0, le=9, description="The higher the sooner; a step is worth a minute of waiting.")]
Attempts = Annotated[
    int, Meta(ge=1, le=MOST_ATTEMPTS, description="How often it is tried before it goes into quarantine.")
]
JobTimeout = Annotated[
    float,
    Meta(
        gt=0,
        le=DAY,
        description="How long one attempt may run, in seconds: more than 0, at most 86400 (1 day); null: no limit.",
        examples=[30],
    ),
]
Delay = Annotated[float, Meta(ge=0, le=30 * DAY, description="Start in so many seconds at the earliest.")]
Moment = Annotated[datetime, Meta(tz=True, description="A moment, as RFC 3339 writes it.")]
RetryDelay = Annotated[float, Meta(ge=0, le=DAY, description="How long to rest after the first attempt, in seconds.")]
RetryMaxDelay = Annotated[float, Meta(ge=0, le=DAY, description="Each rest is longer than the last, up to this one.")]
Jitter = Annotated[float, Meta(ge=0, le=1, description="By what part a rest may be longer or shorter, by chance.")]
WaitSeconds = Annotated[float, Meta(ge=0, le=3_600, description="Wait so many seconds for the job's end.")]

State = Literal["waiting", "delayed", "running", "ended"]
OutcomeName = Literal["done", "failed", "timed out", "lost", "cancelled", "refused"]


class OperationRequest(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that is asked."""


class View(Struct, kw_only=True):
    """Something that is answered."""


# ---------------------------------------------------------------- jobs


class EnqueueRequest(OperationRequest):
    """A background job: acknowledged once it is on disk. Its payload comes apart from it, or in the form."""

    service: ServiceName
    payload: Text | None = None
    payload_base64: Base64 | None = None
    delay: Delay = 0.0
    not_before: Moment | None = None
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
    """Wait for a job's outcome for so many seconds."""

    id: JobIdText
    wait: WaitSeconds = 0.0


class ListJobsRequest(OperationRequest):
    service: ServiceName | None = None
    state: State | None = None
    outcome: OutcomeName | None = None
    quarantined: bool | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    after: JobIdText | None = None


class AttemptView(View):
    number: int
    worker: str
    outcome: OutcomeName | None = None
    reason: str = ""


class FailureView(View):
    """A worker's own account of why it could not do a job."""

    type: str
    message: str
    detail: str


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
    by: Annotated[str, Meta(min_length=1, max_length=128)] = "an operator"


class PurgeRequest(OperationRequest):
    """End what waits for this service as *cancelled*; of ended jobs, forget the outcomes."""

    name: ServiceName
    states: tuple[Literal["waiting", "delayed", "ended"], ...] = ("waiting", "delayed")


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
    id: Annotated[int, Meta(ge=0, le=2**53)]


class DrainRequest(OperationRequest):
    id: Annotated[int, Meta(ge=0, le=2**53)]
    now: bool = False


class WorkerView(View):
    id: int
    name: str
    dialect: str
    state: str
    services: list[str]
    capacity: int
    running: list[JobIdText]
    unproven: int
    comes_back: bool
    silent: float
    lease: float | None


class WorkersView(View):
    workers: list[WorkerView]


# ---------------------------------------------------------------- recurring jobs


class ScheduleRequest(OperationRequest):
    """A job that is made again and again, by a cron expression or at an interval; exactly one of the two is said."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    service: ServiceName
    cron: str | None = None
    every: Annotated[float, Meta(ge=1, le=366 * DAY)] | None = None
    timezone: str = "UTC"
    overlap: bool = False
    paused: bool = False
    payload: Text | None = None
    payload_base64: Base64 | None = None
    priority: Priority = 5
    attempts: Attempts = 3
    timeout: JobTimeout | None = JOB_TIMEOUT
    retry_first: RetryDelay | None = None
    retry_cap: RetryMaxDelay | None = None
    retry_jitter: Jitter | None = None


class ScheduleRef(OperationRequest):
    name: Annotated[str, Meta(min_length=1, max_length=128)]


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


class SchedulesView(View):
    recurring: list[ScheduleView]


# ---------------------------------------------------------------- the broker


class HealthView(View):
    ready: bool
    problems: list[str]
    version: str
    jobs: int
    workers: int
    peers: int
    draining: bool
    loading: bool


class ErrorView(View):
    """Why something was not done. `kind` is a word for programs, `detail` a sentence for people."""

    kind: Literal[
        "not found",
        "invalid",
        "conflict",
        "busy",
        "draining",
        "loading",
        "diary",
        "key reused",
        "no such service",
        "internal",
    ]
    detail: str


class OperationError(Exception):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = ErrorView(kind=kind, detail=detail)  # type: ignore[arg-type]
