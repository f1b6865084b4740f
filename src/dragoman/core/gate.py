"""The gate to the diary: what a durable job promises leaves only after the diary has it (R103)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum, auto

from dragoman.core.effects import Save
from dragoman.core.model import Job


class Promise(Enum):
    """What leaves once a save is safe."""

    ACCEPT = auto()  # the job is in: tell its callers, and let it start
    ANSWER = auto()  # the job has ended: tell its callers how
    NOTHING = auto()


class Gate:
    __slots__ = ("_held", "last")

    def __init__(self) -> None:
        self.last = 0  # the number of the newest save
        self._held: deque[tuple[int, Job, Promise]] = deque()

    def hold(self, job: Job, promise: Promise) -> Save:
        """Write the job down as it is now."""
        self.last += 1
        self._held.append((self.last, job, promise))
        return Save(job, self.last)

    def release(self, number: int) -> Iterator[tuple[Job, Promise]]:
        """All that was held for saves up to this one, in their order."""
        while self._held and self._held[0][0] <= number:
            _, job, promise = self._held.popleft()
            yield job, promise

    def newcomers(self) -> Iterator[Job]:
        """Jobs that wait to be accepted."""
        return (job for _, job, promise in self._held if promise is Promise.ACCEPT)
