"""The gate to the diary: what a durable job promises leaves only after the diary has it (R103)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum, auto

from dragoman.core.effects import Note, Save
from dragoman.core.model import Job


class Promise(Enum):
    """What leaves once a save is safe."""

    ACCEPT = auto()  # the job is in: tell its callers, and let it start
    ANSWER = auto()  # the job has ended: tell its callers how
    NOTHING = auto()


class Gate:
    __slots__ = ("_held", "last", "safe")

    def __init__(self) -> None:
        self.last = 0  # the number of the newest save
        self.safe = 0  # and of the last that the diary has committed
        self._held: deque[tuple[int, Job, Promise]] = deque()

    def hold(self, job: Job, promise: Promise) -> Save:
        """Write the job down as it is now."""
        self.last += 1
        if not job.number:
            job.number = self.last
        self._held.append((self.last, job, promise))
        return Save(job, self.last)

    def note(self, key: str, value: str | None) -> Note:
        """Write down something that is no job."""
        self.last += 1
        return Note(key, value, self.last)

    def release(self, number: int) -> Iterator[tuple[Job, Promise]]:
        """All that was held for saves up to this one, in their order."""
        self.safe = max(self.safe, number)
        while self._held and self._held[0][0] <= number:
            _, job, promise = self._held.popleft()
            yield job, promise

    @property
    def is_holding(self) -> bool:
        """Whether something has been decided that the diary does not have yet."""
        return self.safe < self.last

    def newcomers(self) -> Iterator[Job]:
        """Jobs that wait to be accepted."""
        return (job for _, job, promise in self._held if promise is Promise.ACCEPT)
