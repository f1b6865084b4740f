"""What is asked and what is answered, as data: the same for HTTP, for the native dialect and for the command line.

Times are seconds, or moments as RFC 3339 writes them. A job's id is 32 lower-case hex digits.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

DAY = 86_400.0
MOST_ATTEMPTS = 100

JobName = Annotated[str, Meta(pattern="^[0-9a-f]{32}$", description="A job's id: 32 lower-case hex digits.")]
ServiceName = Annotated[
    str, Meta(min_length=1, max_length=128, description="1 to 128 bytes without control characters.")
]
Key = Annotated[str, Meta(min_length=1, max_length=256)]
Priority = Annotated[int, Meta(ge=0, le=9, description="The higher the sooner; a step is worth a minute of waiting.")]
Attempts = Annotated[int, Meta(ge=1, le=MOST_ATTEMPTS)]
JobTimeout = Annotated[float, Meta(gt=0, le=DAY, description="How long one attempt may run, in seconds.")]
Delay = Annotated[float, Meta(ge=0, le=30 * DAY)]
Rest = Annotated[float, Meta(ge=0, le=DAY)]
Jitter = Annotated[float, Meta(ge=0, le=1)]
Patience = Annotated[float, Meta(ge=0, le=3_600)]

State = Literal["waiting", "delayed", "running", "ended"]
Ending = Literal["done", "failed", "timed out", "lost", "cancelled", "refused"]


class Form(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that is asked."""


class View(Struct, kw_only=True):
    """Something that is answered."""


# ---------------------------------------------------------------- jobs


class Order(Form):
    """A background job: acknowledged once it is on disk. Its payload comes apart from it, or in the form."""

    service: ServiceName
    payload: str | None = None
    payload_base64: str | None = None
    delay: Delay = 0.0
    not_before: datetime | None = None
    priority: Priority = 5
    attempts: Attempts = 3
    timeout: JobTimeout | None = None
    key: Key | None = None
    retry_first: Rest | None = None
    retry_cap: Rest | None = None
    retry_jitter: Jitter | None = None


class JobRef(Form):
    id: JobName


class ResultForm(Form):
    """Wait for a job's outcome for so many seconds."""

    id: JobName
    wait: Patience = 0.0


class JobsForm(Form):
    service: ServiceName | None = None
    state: State | None = None
    outcome: Ending | None = None
    quarantined: bool | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    after: JobName | None = None


class AttemptView(View):
    number: int
    worker: str
    outcome: Ending | None = None
    reason: str = ""


class FailureView(View):
    """A worker's own account of why it could not do a job."""

    type: str
    message: str
    detail: str


class JobView(View):
    id: JobName
    service: str
    state: State
    outcome: Ending | None
    reason: str
    background: bool
    quarantined: bool
    priority: int
    attempts: list[AttemptView]
    max_attempts: int | None
    created: datetime
    not_before: datetime | None = None
    kept_until: datetime | None = None
    key: str | None = None
    retry_of: JobName | None = None
    result: str | None = None
    result_base64: str | None = None
    error: FailureView | None = None


class JobsView(View):
    jobs: list[JobView]
    after: JobName | None = None


class WhyView(View):
    id: JobName
    why: str


# ---------------------------------------------------------------- services and workers


class NoForm(Form):
    pass


class ServiceRef(Form):
    name: ServiceName


class PauseForm(Form):
    name: ServiceName
    by: Annotated[str, Meta(min_length=1, max_length=128)] = "an operator"


class PurgeForm(Form):
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


class WorkerRef(Form):
    id: Annotated[int, Meta(ge=0, le=2**53)]


class DrainForm(Form):
    id: Annotated[int, Meta(ge=0, le=2**53)]
    now: bool = False


class WorkerView(View):
    id: int
    name: str
    dialect: str
    state: str
    services: list[str]
    capacity: int
    running: list[JobName]
    unproven: int
    silent: float
    lease: float | None


class WorkersView(View):
    workers: list[WorkerView]


# ---------------------------------------------------------------- recurring jobs


class CronForm(Form):
    """A job that is made again and again, by a cron expression or at an interval; exactly one of the two is said."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    service: ServiceName
    cron: str | None = None
    every: Annotated[float, Meta(ge=1, le=366 * DAY)] | None = None
    timezone: str = "UTC"
    overlap: bool = False
    paused: bool = False
    payload: str | None = None
    payload_base64: str | None = None
    priority: Priority = 5
    attempts: Attempts = 3
    timeout: JobTimeout | None = None
    retry_first: Rest | None = None
    retry_cap: Rest | None = None
    retry_jitter: Jitter | None = None


class CronRef(Form):
    name: Annotated[str, Meta(min_length=1, max_length=128)]


class CronView(View):
    name: str
    service: str
    cron: str | None
    every: float | None
    timezone: str
    overlap: bool
    paused: bool
    next: datetime | None
    last: datetime | None
    last_job: JobName | None
    runs: int
    skipped: int


class CronsView(View):
    recurring: list[CronView]


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


class Problem(View):
    """Why something was not done. `kind` is a word for programs, `detail` a sentence for people."""

    kind: Literal[
        "not found", "invalid", "conflict", "busy", "draining", "loading", "diary", "key reused", "no such service"
    ]
    detail: str


class Objection(Exception):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(kind=kind, detail=detail)  # type: ignore[arg-type]
