"""Runs of schedules: the right of their owner, and the responder of each until its job has ended."""

from __future__ import annotations

from dragoman.core.failure import Failure
from dragoman.core.model import JobId, Payload
from dragoman.core.owners import Owner
from dragoman.core.rights import CALL, Principals
from dragoman.operations.scheduler import Scheduler
from dragoman.operations.schemas import ErrorView, JobView, View


def forbidden_run(principals: Principals, owner: str, service: str) -> str | None:
    """Return the reason why this principal may not enqueue jobs of the service, or None if it may."""
    principal = principals.named(owner)
    if principal.may(CALL, service):
        return None
    return f"{owner} may not call '{service}'{': it is not in the access table' if principal.is_gone else ''}"


class ScheduledRun:
    """Notifies the scheduler when the job of the run has ended, or if the store could not write it."""

    dialect = "schedule"
    origin = "this broker"

    __slots__ = ("_name", "_scheduler", "job", "owner")

    def __init__(self, scheduler: Scheduler, name: str, owner: Owner) -> None:
        self.owner = owner
        self._scheduler = scheduler
        self._name = name
        self.job: JobId | None = None

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        """Notify the scheduler that the job has ended."""
        if isinstance(view, JobView):
            self._scheduler.run_ended(self._name, view)

    def refuse(self, problem: ErrorView) -> None:
        """Notify the scheduler if the store could not write the job. It knows of a refusal without a job."""
        if self.job is not None:
            self._scheduler.run_not_stored(self._name, self.job)
