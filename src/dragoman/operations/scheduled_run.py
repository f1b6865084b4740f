"""Responder of one run of a schedule, until the job is accepted."""

from __future__ import annotations

from dragoman.core.failure import Failure
from dragoman.core.model import JobId, Payload
from dragoman.core.owners import Owner
from dragoman.operations.scheduler import Scheduler
from dragoman.operations.schemas import ErrorView, View


class ScheduledRun:
    """Notifies the scheduler if the store could not write the run."""

    dialect = "schedule"

    __slots__ = ("_name", "_scheduler", "job", "owner")

    def __init__(self, scheduler: Scheduler, name: str, owner: Owner) -> None:
        self.owner = owner
        self._scheduler = scheduler
        self._name = name
        self.job: JobId | None = None

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        pass

    def refuse(self, problem: ErrorView) -> None:
        """Notify the scheduler if the store could not write the job. It knows of a refusal without a job."""
        if self.job is not None:
            self._scheduler.run_not_stored(self._name, self.job)
