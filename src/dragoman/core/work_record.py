"""The work of a worker so far: its attempts by result, their duration, and the jobs that it did for each dialect."""

from __future__ import annotations

from typing import Final

# Weight of the latest attempt in the mean duration: about the last twenty matter.
SMOOTHING: Final = 0.1


class FlowCell:
    """Jobs that callers of one dialect submitted and workers of one dialect did."""

    __slots__ = ("broker_time", "count")

    def __init__(self) -> None:
        self.count = 0
        self.broker_time = 0.0  # sum of the seconds from queueing to the result, without the attempts


NO_FLOW: Final[dict[str, FlowCell]] = {}  # of a worker that has done no job yet


class WorkRecord:
    """Base class of workers: numbers since they joined."""

    __slots__ = ("done", "flow", "formerly", "mean_run", "since", "undone")

    def __init__(self, now: float) -> None:
        self.since = now  # time at which it joined
        self.done = 0  # attempts that delivered a result
        self.undone = 0  # attempts that failed, timed out or were lost
        self.mean_run = 0.0  # duration in seconds of the attempts in `done`: a mean in which the latest ones weigh most
        self.formerly: tuple[str, int] | None = None  # dialect and id of the earlier run's worker that it replaces
        self.flow = NO_FLOW  # cells of its own dialect by the dialect of the caller; all workers of a dialect share it
