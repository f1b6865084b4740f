"""Ended jobs whose outcome is kept for whoever comes back, and the idempotency keys by which they are found (R24)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from dragoman.core.model import Job

OBJECT_BYTES: Final = 1024  # what a job costs besides its bytes: an outcome of none is not free


class Archive:
    __slots__ = ("_kept", "_keys", "_max_bytes", "bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._keys: dict[tuple[str, str], Job] = {}
        self._kept: deque[Job] = deque()  # in the order they ended; some may have been dropped since
        self.bytes = 0

    def find(self, service: str, key: str) -> Job | None:
        return self._keys.get((service, key))

    def note_key(self, job: Job) -> None:
        assert job.key is not None
        self._keys[job.service.name, job.key] = job

    def keep(self, job: Job, until: float) -> None:
        job.keep_until = until
        self._kept.append(job)
        self.bytes += _cost(job)

    def drop(self, job: Job) -> None:
        """Forget a job, kept or not."""
        if job.key is not None and self._keys.get((job.service.name, job.key)) is job:
            del self._keys[job.service.name, job.key]  # else a later one has it
        if job.is_archived:
            self.bytes -= _cost(job)
            job.keep_until = -1.0
            while self._kept and not self._kept[0].is_archived:
                self._kept.popleft()

    def beyond_bounds(self) -> Iterator[Job]:
        """The oldest outcomes, for as long as all of them together take too much (L20)."""
        while self.bytes > self._max_bytes and self._kept:
            yield self._kept[0]


def _cost(job: Job) -> int:
    failure = job.failure
    size = len(job.result) if failure is None else failure.size
    return size + len(job.payload) + OBJECT_BYTES
