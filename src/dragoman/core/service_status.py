"""Status of a service: its pause, and numbers that are kept up to date, so that views read them without a search."""

from __future__ import annotations

from dragoman.core.histogram import Histogram
from dragoman.core.infinity import inf
from dragoman.core.job_sample import JobSample
from dragoman.core.service_limits import ServiceLimits
from dragoman.core.states import DONE, Outcome
from dragoman.core.task_parameters import ServiceParameters


class JobTotals:
    """Dependent, delayed and waiting jobs of all services together. The other jobs that are present are running."""

    __slots__ = ("delayed", "dependent", "waiting")

    def __init__(self) -> None:
        self.delayed = 0
        self.dependent = 0
        self.waiting = 0


class ServiceStatus:
    """Base class of services. `done` and `undone` count since the start of the broker."""

    # fmt: off
    __slots__ = (
        "bytes", "closed", "delayed", "dependent", "done", "is_partitioned", "jobs", "limits", "parameters", "paused",
        "paused_at", "paused_by", "ran", "sample", "slow_run", "totals", "undone", "waited",
    )
    # fmt: on

    def __init__(self, totals: JobTotals) -> None:
        self.limits: ServiceLimits | None = None  # None: there was never one
        self.parameters: ServiceParameters | None = None  # None: no worker has declared any
        self.closed = False  # none of its jobs is dispatched now: it is paused, or its limits allow none
        self.paused = False
        self.paused_by = ""
        self.paused_at: float | None = None  # time at which it was paused; None: it is not, or the time is not known
        self.is_partitioned = False  # its only workers are at brokers of the cluster that are not heard
        self.totals = totals
        self.jobs = 0  # jobs present, in any state
        self.bytes = 0  # their payloads in memory
        self.delayed = 0  # jobs among those whose delay has not ended
        self.dependent = 0  # jobs among those that wait for other jobs
        self.done = 0  # jobs that ended `done`
        self.undone = dict.fromkeys(Outcome, 0)  # jobs that ended otherwise
        self.waited = Histogram()  # seconds from queueing to the first attempt
        self.ran = Histogram()  # duration of attempts, in seconds
        self.slow_run = inf  # at most about 1 % of them take longer
        self.sample: JobSample | None = None  # of its recorded jobs

    def count_running(self, principal: str, tenant: str, change: int) -> None:
        """Count a job that begins to run (1), or runs no more (-1), if the service has limits."""
        if self.limits is not None:
            self.limits.count(principal, tenant, change)
            self.update_closed()

    def update_closed(self) -> None:
        """Set `closed`, after its pause or its limits have changed."""
        self.closed = self.paused or (self.limits is not None and self.limits.is_full)

    def count_delayed(self, change: int) -> None:
        self.delayed += change
        self.totals.delayed += change

    def sampled(self) -> JobSample:
        """Return the sample of its recorded jobs, which the first of them creates."""
        if self.sample is None:
            self.sample = JobSample()
        return self.sample

    def count_dependent(self, change: int) -> None:
        self.dependent += change
        self.totals.dependent += change

    @property
    def ended(self) -> dict[Outcome, int]:
        """Number of jobs by outcome."""
        return self.undone | {DONE: self.done}
