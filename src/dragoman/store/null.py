"""A store that stores nothing: every save is done at once. For calls, tests, and `--data memory`."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.model import Job, Payload
from dragoman.core.store_entries import DeleteJob, StoreJob, StoreValue


class NullStore:
    """Confirms every save at once."""

    problem: str | None = None  # the reason why nothing can be written; never set

    def __init__(self) -> None:
        self.commits = Histogram()

    def apply(self, entries: list[StoreJob | StoreValue | DeleteJob], done: Callable[[int, str | None], None]) -> None:
        numbers = [entry.number for entry in entries if entry.number]
        if numbers:
            done(numbers[-1], None)

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        done(job.payload, job.result, job.failure)

    def close(self) -> str | None:
        return None
