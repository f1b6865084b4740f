"""The responder of a run of a schedule."""

from __future__ import annotations

from dragoman.core.failure import Failure
from dragoman.core.model import JobId, Payload
from dragoman.operations.scheduler import Scheduler
from dragoman.operations.schemas import ErrorView, View


class ScheduledRun:
    """Waits until the job of a run is accepted, and tells the scheduler if it is refused."""

    __slots__ = ("_name", "_scheduler", "job")
    owner = None  # the scheduler limits their number

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler = scheduler
        self._name = name
        self.job: JobId | None = None

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        pass

    def refuse(self, problem: ErrorView) -> None:
        """The job was refused: at once, which the scheduler knows, or because the store could not write it."""
        if self.job is not None:
            self._scheduler.take_back(self._name, self.job)
