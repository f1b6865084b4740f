"""Options of a job, which its caller sets, and of a worker, which its dialect sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dragoman.core.infinity import inf
from dragoman.core.states import Unique

DEFAULT_PRIORITY: Final = 5
HIGHEST_PRIORITY: Final = 9
UNLIMITED_REQUESTS: Final = 1 << 60  # requests of a worker that does not pull: more than it ever gets
BEHIND: Final = 1 << 61  # a worker that is behind requests so many fewer: none


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """Properties of a worker that come from its dialect. All workers of a listener share one object."""

    lease: float = inf  # seconds of silence after which the worker counts as dead
    silent_while_busy: bool = False  # D5: then only the job's time-out ends an attempt
    may_decline: bool = False
    pulls: bool = False  # R131: it gets only as many jobs as it requests; other workers always request
    capacity: int = 1
    is_broker: bool = False  # it stands for the workers of another broker, whose declarations are not known here
    stuck_timeout: float = 3_600.0  # seconds after which a stuck worker is removed (R36)
    detach_timeout: float = 60.0  # seconds after which a detached worker without a lease is removed (R64)
    can_resume: bool = False  # it can name an attempt that it was sent before the broker restarted (R107)
    can_move: bool = False  # it takes its running jobs to another broker of the cluster when it is asked (R119)
    comes_back: bool = False  # after a removal it joins again at once: its dialect has no message that ends a worker
    ends_with_connection: bool = False  # its broker side closes a silent connection, then reports unsent attempts (R8)
    job_timeout: float = inf  # run time of a job without any limit: the listener's, where busy workers are silent
    max_payload: int = 64 << 20  # bytes of a result, including parts sent before
    attempts: int = 1  # D8: default of the dialect for a job that does not set a number

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity {self.capacity} is less than 1")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of a job. Jobs with equal options share one object."""

    queue_timeout: float = inf  # seconds in the queue before an attempt
    job_timeout: float = 60.0  # run time of one attempt, in seconds; inf: no limit
    attempts: int | None = None  # None: the larger default of the caller's and the worker's dialect (D8)
    default_attempts: int = 1
    priority: int = DEFAULT_PRIORITY
    delay: float = 0.0
    waits: bool = False  # wait for a worker instead of ending `refused: no such service`
    durable: bool = False  # a background job: acknowledged when the store has committed it
    retry_first: float | None = None  # R11: delay before the second attempt, doubled each time; None: the policy's
    retry_cap: float | None = None
    retry_jitter: float | None = None
    orphan_grace: float = 0.0  # seconds that a waiting call outlives its caller
    unique: Unique = Unique.KEPT  # R24: how long it holds its idempotency key, if it has one
    keep: float | None = None  # R136: seconds for which its outcome is kept; None: the policy's; inf: until deleted
    streams: bool = False  # send parts of the result to the caller as they arrive; else they are joined with it
    is_limited: bool = True  # limits count it; not so a job that another broker of the cluster counts
    parameters: tuple[str, ...] = ()  # R268: those of its task, as its caller knows it; empty: the caller does not say

    def __post_init__(self) -> None:
        if not 0 <= self.priority <= HIGHEST_PRIORITY:
            raise ValueError(f"priority {self.priority} is not between 0 and {HIGHEST_PRIORITY}")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts {self.attempts} is less than 1")


def options_from(values: dict[str, Any]) -> JobOptions:
    """Make options from values as JSON has them."""
    if "unique" in values:
        values = {**values, "unique": Unique(values["unique"])}
    if "parameters" in values:
        values = {**values, "parameters": tuple(values["parameters"])}
    return JobOptions(**values)
