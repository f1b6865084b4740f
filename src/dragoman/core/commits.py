"""Holds acknowledgements, attempts and outcomes of background jobs until the store has committed them (R103, R108)."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from enum import Enum, auto

from dragoman.core.model import Attempt, Job, JobId
from dragoman.core.recipients import Effect
from dragoman.core.store_entries import StoreJob, StoreValue


class AfterCommit(Enum):
    """The action that follows once a save is committed."""

    ACKNOWLEDGE = auto()  # acknowledge the job to its callers
    SEND = auto()  # send the attempt to its worker
    DELIVER = auto()  # send the outcome to the job's callers
    NOTHING = auto()


Held = tuple[Job, AfterCommit, Attempt | None]


class PendingCommits:
    """Requests and numbers the saves, and holds what must wait for each commit."""

    def __init__(self, effects: list[Effect]) -> None:
        self.last = 0  # number of the newest save
        self.safe = 0  # number of the last save that the store has committed
        self._effects = effects
        self._held: deque[tuple[int, Held]] = deque()
        self._unwritten: list[Held] = []  # attempts whose save failed: the store writes them later (R101)

    def save(
        self,
        job: Job,
        after_commit: AfterCommit = AfterCommit.NOTHING,
        rewrites: bool = False,
        has_new_payload: bool = False,
    ) -> None:
        """Store the job as it is now. With `AfterCommit.SEND`, its current attempt is held until the commit.
        `rewrites`: its options or extras have changed, and are stored, too. `has_new_payload`: so has its payload."""
        self.last += 1
        if not job.number:
            job.number = self.last
        self._held.append((self.last, (job, after_commit, job.attempt if after_commit is AfterCommit.SEND else None)))
        self._effects.append(StoreJob(job, self.last, rewrites, has_new_payload))

    def note(self, key: str, value: str | None) -> None:
        """Store a value that belongs to no job. None: delete it."""
        self.last += 1
        self._effects.append(StoreValue(key, value, self.last))

    def release(self, number: int, is_written: bool) -> Iterator[Held]:
        """Yield what was held for saves up to this one, in order. Attempts are released only if the store has them."""
        self.safe = max(self.safe, number)
        if is_written and self._unwritten:
            unwritten, self._unwritten = self._unwritten, []
            yield from unwritten
        while self._held and self._held[0][0] <= number:
            held = self._held.popleft()[1]
            if is_written or held[1] is not AfterCommit.SEND:
                yield held
            else:
                self._unwritten.append(held)

    def held_jobs(self) -> set[JobId]:
        """Return the jobs about which something waits for a commit. Only for lookups: a set has no order."""
        return {held[0].id for _, held in self._held}

    def forget(self, ids: Container[JobId]) -> None:
        """Drop what is held for these jobs: another broker decides about them now."""
        self._held = deque([entry for entry in self._held if entry[1][0].id not in ids])
        self._unwritten = [held for held in self._unwritten if held[0].id not in ids]

    def has_accepted(self, job: Job) -> bool:
        """True if the store has committed this background job."""
        return job.number <= self.safe

    @property
    def is_holding(self) -> bool:
        """True if a decision waits for its commit."""
        return self.safe < self.last
