"""Ended jobs whose outcome is kept for later requests, in the order of their deletion."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from dragoman.core.infinity import inf
from dragoman.core.model import Job

FOREVER: Final = 1e300  # `keep_until` of an outcome that is kept until it is deleted
OBJECT_BYTES: Final = 1024  # cost of a job besides its bytes: an empty outcome is not free
SWEEP_FLOOR: Final = 64  # entries of dropped jobs that are not worth a sweep


def keeps_forever(job: Job) -> bool:
    """True if its outcome is kept until it is deleted. What only memory has ends with the broker."""
    return job.options.keep == inf and job.options.durable


class Archive:
    """The kept jobs and their bytes. Outcomes that are kept until they are deleted are exempt from both."""

    __slots__ = ("_dropped", "_kept", "_max_bytes", "bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: deque[Job] = deque()  # in the order they ended, each once; some may have been dropped since
        self._dropped = 0  # entries of jobs that were dropped
        self.bytes = 0

    def keep(self, job: Job, until: float) -> None:
        job.keep_until = until
        if until != FOREVER:
            self._kept.append(job)
            self.bytes += _cost(job)

    def drop(self, job: Job) -> None:
        """Remove a job, kept or not."""
        if not job.is_archived:
            return
        if job.keep_until != FOREVER:
            self.bytes -= _cost(job)
            self._dropped += 1
        job.keep_until = -1.0
        kept = self._kept
        while kept and not kept[0].is_archived:
            kept.popleft()
            self._dropped -= 1
        if self._dropped > SWEEP_FLOOR + len(kept) // 2:  # a job at the front may stay for years
            self._kept = deque(each for each in kept if each.is_archived)
            self._dropped = 0

    def reopen(self, job: Job) -> None:
        """Remove a job that is going to wait again, and may be kept once more."""
        self.drop(job)
        if job in self._kept:
            self._kept.remove(job)
            self._dropped -= 1

    def over_limit(self) -> Iterator[Job]:
        """Yield the oldest outcomes while all of them together exceed the limit (L20)."""
        while self.bytes > self._max_bytes and self._kept:
            yield self._kept[0]

    @property
    def entries(self) -> int:
        """Number of entries in the order of deletion, with those of dropped jobs."""
        return len(self._kept)


def _cost(job: Job) -> int:
    failure = job.failure
    size = len(job.result) if failure is None else failure.size
    if job.progress is not None:
        size += len(job.progress)
    return size + len(job.payload) + OBJECT_BYTES
