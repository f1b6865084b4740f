"""Status of a service: its pause, and numbers that are kept up to date, so that views read them without a search."""

from __future__ import annotations

from dragoman.core.histogram import Histogram
from dragoman.core.infinity import inf
from dragoman.core.states import DONE, Outcome


class JobTotals:
    """Waiting and delayed jobs of all services together. The jobs that are present and neither of both are running."""

    __slots__ = ("delayed", "waiting")

    def __init__(self) -> None:
        self.delayed = 0
        self.waiting = 0


class ServiceStatus:
    """Base class of services. `done` and `undone` count since the start of the broker."""

    # fmt: off
    __slots__ = (
        "bytes", "delayed", "done", "is_partitioned", "jobs", "paused", "paused_at", "paused_by", "ran", "slow_run",
        "totals", "undone", "waited",
    )
    # fmt: on

    def __init__(self, totals: JobTotals) -> None:
        self.paused = False
        self.paused_by = ""
        self.paused_at: float | None = None  # time at which it was paused; None: it is not, or the time is not known
        self.is_partitioned = False  # its only workers are at brokers of the cluster that are not heard
        self.totals = totals
        self.jobs = 0  # jobs present, in any state
        self.bytes = 0  # their payloads in memory
        self.delayed = 0  # jobs among those whose delay has not ended
        self.done = 0  # jobs that ended `done`
        self.undone = dict.fromkeys(Outcome, 0)  # jobs that ended otherwise
        self.waited = Histogram()  # seconds from queueing to the first attempt
        self.ran = Histogram()  # duration of attempts, in seconds
        self.slow_run = inf  # at most about 1 % of them take longer

    def count_delayed(self, change: int) -> None:
        self.delayed += change
        self.totals.delayed += change

    @property
    def ended(self) -> dict[Outcome, int]:
        """Number of jobs by outcome."""
        return self.undone | {DONE: self.done}
