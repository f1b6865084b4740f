"""Effects for the store: entries that it writes or removes."""

from __future__ import annotations

from dragoman.core.model import Job
from dragoman.core.recipients import Effect


class StoreJob(Effect):
    """Write this job, as it is now, into the diary, then say `saved(number)`. Numbers rise; so must the commits.

    `rewrites`: what it asks for has changed since it was written first.
    """

    __slots__ = ("job", "number", "rewrites")

    def __init__(self, job: Job, number: int, rewrites: bool = False) -> None:
        self.job = job
        self.number = number
        self.rewrites = rewrites


class StoreValue(Effect):
    """Write down something that is no job, such as that a service is paused: `value` under `key`, or nothing more."""

    __slots__ = ("key", "number", "value")

    def __init__(self, key: str, value: str | None, number: int) -> None:
        self.key = key
        self.value = value
        self.number = number  # as in Save


class DeleteJob(Effect):
    """The keep time of this job's outcome is over: remove it from the diary."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job = job


StoreEntry = StoreJob | StoreValue | DeleteJob
