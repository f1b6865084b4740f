"""Effects for the store: entries to write or delete."""

from __future__ import annotations

from dragoman.core.model import Job
from dragoman.core.recipients import Effect


class StoreJob(Effect):
    """Write this job as it is now, then call `saved(number)`. Numbers rise, and commits keep their order.

    `rewrites`: its options or its key have changed since the first write.
    """

    __slots__ = ("job", "number", "rewrites")

    def __init__(self, job: Job, number: int, rewrites: bool = False) -> None:
        self.job = job
        self.number = number
        self.rewrites = rewrites


class StoreValue(Effect):
    """Write `value` under `key`, for state that belongs to no job, such as a paused service. None: delete it."""

    __slots__ = ("key", "number", "value")

    def __init__(self, key: str, value: str | None, number: int) -> None:
        self.key = key
        self.value = value
        self.number = number  # as in StoreJob


class DeleteJob(Effect):
    """Delete a job. `number`: as in StoreJob, if something waits for the commit; else 0."""

    __slots__ = ("job", "number")

    def __init__(self, job: Job, number: int = 0) -> None:
        self.job = job
        self.number = number


StoreEntry = StoreJob | StoreValue | DeleteJob
