"""Who waits for a run of a recurring job to be let in."""

from __future__ import annotations

from dragoman.core.failure import Failure
from dragoman.core.model import JobId, Payload
from dragoman.operations.scheduler import Scheduler
from dragoman.operations.schemas import ErrorView, View


class ScheduledRun:
    __slots__ = ("_calendar", "_name", "job")
    owner = None  # the calendar bounds how many there are

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._calendar = scheduler
        self._name = name
        self.job: JobId | None = None

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        pass

    def refuse(self, problem: ErrorView) -> None:
        """At once, and the calendar knows it; or when the diary could not write it."""
        if self.job is not None:
            self._calendar.take_back(self._name, self.job)
