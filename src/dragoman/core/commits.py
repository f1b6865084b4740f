"""Holds acknowledgements, attempts and outcomes of background jobs until the store has committed them (R103, R108).

Each shard of a cluster commits by itself, so each has its own queue: what waits for one is not delayed by another. A
broker without a cluster has one queue, that of shard 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from enum import Enum, auto
from typing import Final, final

from dragoman.core.model import Attempt, Job, JobId
from dragoman.core.recipients import Effect
from dragoman.core.store_entries import DeleteJob, NoteRow, StoreJob, StoreRow, StoreValue


class AfterCommit(Enum):
    """The action that follows once a save is committed."""

    ACKNOWLEDGE = auto()  # acknowledge the job to its callers
    SEND = auto()  # send the attempt to its worker
    DELIVER = auto()  # send the outcome to the job's callers
    NOTHING = auto()


SETTINGS: Final = (0,)  # the shard of values that belong to no job

Held = tuple[Job, AfterCommit, Attempt | None]


@final
class ShardCommits:
    """The saves of one shard, and what is held for them."""

    __slots__ = ("held", "last", "safe", "unwritten")

    def __init__(self) -> None:
        self.last = 0  # number of the newest save
        self.safe = 0  # number of the last save that the store has committed
        self.held: deque[tuple[int, Held]] = deque()
        self.unwritten: list[Held] = []  # attempts whose save failed: the store writes them later (R101)


class PendingCommits:
    """Requests and numbers the saves, and holds what must wait for each commit. Numbers rise over all shards."""

    def __init__(self, effects: list[Effect]) -> None:
        self.newest = 0  # number of the newest save of all
        self.unwritable: dict[int, None] = {}  # shards that cannot be written now (`set_aside.py`)
        self._effects = effects
        self._shard_of: Callable[[bytes], int] | None = None  # of a job or group; None: there is only shard 0
        self._shard_of_note: Callable[[str], int] = lambda key: 0
        self._first = ShardCommits()
        self._by_shard: dict[int, ShardCommits] = {0: self._first}

    def divide(self, shard_of: Callable[[bytes], int], shard_of_note: Callable[[str], int]) -> None:
        """There are shards. The functions return that of a job or group, and that of the value of a key."""
        self._shard_of = shard_of
        self._shard_of_note = shard_of_note

    # ---------------------------------------------------------------- saves

    def save(
        self,
        job: Job,
        after_commit: AfterCommit = AfterCommit.NOTHING,
        rewrites: bool = False,
        has_new_payload: bool = False,
    ) -> None:
        """Store the job as it is now. With `AfterCommit.SEND`, its current attempt is held until the commit.
        `rewrites`: its options, key or extras have changed, and are stored, too. `has_new_payload`: so has its
        payload."""
        shard = 0 if self._shard_of is None else self._shard_of(job.id)
        commits = self._first if shard == 0 else self._of(shard)
        self.newest = commits.last = number = self.newest + 1
        if not job.number:
            job.number = number
        attempt = job.attempt if after_commit is AfterCommit.SEND else None
        commits.held.append((number, (job, after_commit, attempt)))
        self._effects.append(StoreJob(job, number, rewrites, has_new_payload, shard))

    def delete(self, job: Job, is_waited_for: bool) -> None:
        """Delete the job. `is_waited_for`: the delete has a number like a save, because something waits for it."""
        shard = self.shard(job.id)
        self._effects.append(DeleteJob(job, self._next(shard) if is_waited_for else 0, shard))

    def note(self, key: str, value: str | None) -> None:
        """Store a value that belongs to no job. None: delete it."""
        shard = self._shard_of_note(key)
        self._effects.append(StoreValue(key, value, self._next(shard), shard))

    def note_row(self, row: NoteRow, shard: int) -> None:
        """Store a row that belongs to no job, as it is when the entries of this iteration are applied."""
        self._effects.append(StoreRow(row, self._next(shard), shard))

    def _next(self, shard: int) -> int:
        self.newest += 1
        self._of(shard).last = self.newest
        return self.newest

    def _of(self, shard: int) -> ShardCommits:
        if shard == 0:
            return self._first
        found = self._by_shard.get(shard)
        if found is None:
            found = self._by_shard[shard] = ShardCommits()
        return found

    def begin_after(self, number: int) -> None:
        """Number saves from the one after this on: the store has those before."""
        self.newest = self._first.last = self._first.safe = number

    # ---------------------------------------------------------------- commits

    def release(self, number: int, is_written: bool, shard: int = 0) -> Iterator[Held]:
        """Yield what was held for saves of a shard up to this one, in order. Attempts are released only if the store
        has them."""
        commits = self._of(shard)
        commits.safe = max(commits.safe, number)
        if is_written and commits.unwritten:
            unwritten, commits.unwritten = commits.unwritten, []
            yield from unwritten
        while commits.held and commits.held[0][0] <= number:
            held = commits.held.popleft()[1]
            if is_written or held[1] is not AfterCommit.SEND:
                yield held
            else:
                commits.unwritten.append(held)

    def forget(self, ids: Container[JobId]) -> None:
        """Drop what is held for these jobs: another broker decides about them now."""
        for commits in self._by_shard.values():
            commits.held = deque([entry for entry in commits.held if entry[1][0].id not in ids])
            commits.unwritten = [held for held in commits.unwritten if held[0].id not in ids]

    # ---------------------------------------------------------------- questions

    def shard(self, id: bytes) -> int:
        """Return the shard of a job or group."""
        return 0 if self._shard_of is None else self._shard_of(id)

    def last(self, shard: int = 0) -> int:
        """Return the number of the newest save of a shard."""
        return self._of(shard).last

    def safe(self, shard: int = 0) -> int:
        """Return the number up to which all saves of a shard are committed."""
        return self._of(shard).safe

    def holding(self) -> list[int]:
        """Return the shards with a decision that waits for its commit."""
        return [shard for shard, commits in self._by_shard.items() if commits.safe < commits.last]

    def saved_since(self, number: int) -> list[int]:
        """Return the shards with a save after that with this number."""
        return [shard for shard, commits in self._by_shard.items() if commits.last > number]

    def held_attempts(self, shard: int) -> list[Attempt]:
        """Return the attempts of a shard that are sent when they are committed."""
        return [attempt for _, (_, _, attempt) in self._of(shard).held if attempt is not None]

    def held_jobs(self, shard: int) -> set[JobId]:
        """Return the jobs of a shard about which something waits for a commit. Only for lookups: a set has no order."""
        return {held[0].id for _, held in self._of(shard).held}

    def has_accepted(self, job: Job) -> bool:
        """True if the store has committed this background job."""
        return job.number <= self._of(self.shard(job.id)).safe

    @property
    def is_holding(self) -> bool:
        """True if a decision waits for its commit."""
        return bool(self.holding())
