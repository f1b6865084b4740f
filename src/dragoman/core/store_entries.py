"""Effects for the store: entries to write or delete."""

from __future__ import annotations

from typing import Protocol

from dragoman.core.model import Job
from dragoman.core.recipients import Effect


class Saved(Protocol):
    """Receives commits: all saves of a shard up to a number are stored, or a problem is the reason why they are not."""

    def __call__(self, number: int, problem: str | None, shard: int = 0, /) -> None: ...


class StoreJob(Effect):
    """Write this job as it is now, then call `saved(number)`. Numbers rise, and commits keep their order.

    `rewrites`: its options, key or extras have changed since the first write. `has_new_payload`: so has its payload.
    `shard`: in a cluster, whose log it is written to; else 0.
    """

    __slots__ = ("has_new_payload", "job", "number", "rewrites", "shard")

    def __init__(
        self, job: Job, number: int, rewrites: bool = False, has_new_payload: bool = False, shard: int = 0
    ) -> None:
        self.job = job
        self.number = number
        self.rewrites = rewrites
        self.has_new_payload = has_new_payload
        self.shard = shard


class StoreValue(Effect):
    """Write `value` under `key`, for state that belongs to no job, such as a paused service. None: delete it."""

    __slots__ = ("key", "number", "shard", "value")

    def __init__(self, key: str, value: str | None, number: int, shard: int = 0) -> None:
        self.key = key
        self.value = value
        self.number = number  # as in StoreJob
        self.shard = shard


class NoteRow(Protocol):
    """A value that changes often: it is written once an iteration. `is_dirty`: it has changed since it was written."""

    is_dirty: bool
    key: str

    def text(self) -> str: ...


class StoreRow(Effect):
    """Write a row as it is when the entries of this iteration are applied. `number`: as in StoreJob."""

    __slots__ = ("number", "row", "shard")

    def __init__(self, row: NoteRow, number: int, shard: int = 0) -> None:
        self.row = row
        self.number = number
        self.shard = shard

    def entry(self) -> StoreValue:
        """Return the entry. What changes later is written by the next one."""
        self.row.is_dirty = False
        return StoreValue(self.row.key, self.row.text(), self.number, self.shard)


class DeleteJob(Effect):
    """Delete a job. `number`: as in StoreJob, if something waits for the commit; else 0."""

    __slots__ = ("job", "number", "shard")

    def __init__(self, job: Job, number: int = 0, shard: int = 0) -> None:
        self.job = job
        self.number = number
        self.shard = shard


class CollectInput(Effect):
    """Load the payload of a dependent job and the results of its predecessors, then call `take_input`."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job = job


StoreEntry = StoreJob | StoreValue | DeleteJob
