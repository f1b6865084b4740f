"""Facts about one moment, from which the rules of attention are judged. Plain values without a reference to a job."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """A service in which jobs wait or have failed. Rates are jobs a second over the last 10 seconds."""

    name: str
    waiting: int = 0
    oldest: float = 0.0
    most_waiting: int = 0  # max_jobs_per_service
    workers: int = 0
    busy: int = 0  # of the workers
    idle: int = 0  # of the workers
    is_paused: bool = False
    paused_by: str = ""
    paused_for: float | None = None  # seconds; None: not known
    is_limited: bool = False  # its jobs wait because of a limit of the service, as somebody has decided
    arrived: float = 0.0
    ended: float = 0.0
    usual_wait: float | None = None  # median of the last hour, in seconds
    done: float = 0.0  # jobs in the last minute
    failed: float = 0.0  # jobs in the last minute that failed, timed out or were lost
    usual_share: float = 0.0  # of failed jobs, in the last hour


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """A worker that may be in trouble."""

    id: int
    name: str
    services: tuple[str, ...]
    held: int  # jobs
    seconds: float  # since its last heartbeat, its detachment, or the end of its attempt
    lease: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    name: str
    used: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineFacts:
    """Jobs that came into quarantine in the last 10 minutes."""

    service: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFacts:
    """A schedule whose latest runs were skipped, or that has made runs for times to come."""

    name: str
    service: str
    skipped: int = 0
    ahead: float = 0.0  # seconds
    waits: float = 0.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StarvingFacts:
    """A service whose jobs starve, because all slots of its workers run jobs that wait for such jobs."""

    service: str
    waiting: int
    slots: int
    services: tuple[str, ...]  # that these slots wait for


@dataclass(slots=True, kw_only=True)
class Facts:
    """All facts of one moment. A list of workers has the first few; the count beside it is the number of all."""

    problems: list[str] = field(default_factory=list)  # reasons for which the broker is not ready
    degraded: list[str] = field(default_factory=list)  # sentences about shards that cannot be used
    replicas: str = ""  # a sentence about NATS servers that are away
    store_problem: str | None = None
    services: list[ServiceFacts] = field(default_factory=list)
    silent: list[WorkerFacts] = field(default_factory=list)
    detached: list[WorkerFacts] = field(default_factory=list)
    stuck: list[WorkerFacts] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # of the silent, detached and stuck ones
    rejoining: dict[str, int] = field(default_factory=dict)  # names of workers, and joins within 5 minutes
    quarantined: list[QuarantineFacts] = field(default_factory=list)
    limits: list[LimitFacts] = field(default_factory=list)
    lag_p99: float | None = None
    bad_messages: dict[str, int] = field(default_factory=dict)  # of the last minute, by dialect
    schedules: list[ScheduleFacts] = field(default_factory=list)
    starving: list[StarvingFacts] = field(default_factory=list)
    unheard: list[str] = field(default_factory=list)  # other brokers of the cluster
