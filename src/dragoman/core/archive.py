"""Ended jobs whose outcome is kept for later requests, and the idempotency keys that find them (R24)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from dragoman.core.model import Job, JobId

OBJECT_BYTES: Final = 1024  # cost of a job besides its bytes: an empty outcome is not free


class Archive:
    """Index of kept jobs by idempotency key, and their order of deletion."""

    __slots__ = ("_kept", "_keys", "_max_bytes", "_pinned", "bytes", "is_frozen", "pins")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._keys: dict[tuple[str, str, str], Job] = {}  # by principal, service and key
        self._kept: deque[Job] = deque()  # in the order they ended; some may have been dropped since
        self.pins: dict[JobId, int] = {}  # dependent jobs that wait, by the id of the job or group they wait for
        self._pinned: dict[JobId, Job] = {}  # pinned jobs that are not in `_kept` meanwhile
        self.bytes = 0
        self.is_frozen = False  # all outcomes are pinned: jobs that may need them are being restored

    def find(self, principal: str, service: str, key: str) -> Job | None:
        return self._keys.get((principal, service, key))

    def note_key(self, job: Job) -> None:
        assert job.key is not None
        self._keys[job.principal.name, job.service.name, job.key] = job

    def keep(self, job: Job, until: float) -> None:
        job.keep_until = until
        self._kept.append(job)
        self.bytes += _cost(job)

    def drop(self, job: Job) -> None:
        """Remove a job, kept or not."""
        if job.key is not None:
            place = (job.principal.name, job.service.name, job.key)
            if self._keys.get(place) is job:  # otherwise a later job has the key
                del self._keys[place]
        if job.is_archived:
            self.bytes -= _cost(job)
            job.keep_until = -1.0
            self._pinned.pop(job.id, None)
            while self._kept and not self._kept[0].is_archived:
                self._kept.popleft()

    def over_limit(self) -> Iterator[Job]:
        """Yield the oldest outcomes while all of them together exceed the limit (L20). Pinned ones stay."""
        while self.bytes > self._max_bytes and self._kept and not self.is_frozen:
            oldest = self._kept[0]
            if not oldest.is_archived:
                self._kept.popleft()
            elif self.is_pinned(oldest):
                self._pinned[oldest.id] = self._kept.popleft()
            else:
                yield oldest

    # ---------------------------------------------------------------- outcomes that dependent jobs need (R184)

    def pin(self, id: JobId) -> None:
        """Keep the outcome of a job or group: one more dependent job waits for it."""
        self.pins[id] = self.pins.get(id, 0) + 1

    def unpin(self, id: JobId) -> None:
        """Undo one `pin`."""
        left = self.pins[id] - 1
        if left:
            self.pins[id] = left
            return
        del self.pins[id]
        job = self._pinned.pop(id, None)
        if job is not None:
            self._kept.appendleft(job)

    def is_pinned(self, job: Job) -> bool:
        """True if a dependent job needs this outcome."""
        return self.is_frozen or (bool(self.pins) and job.id in self.pins)


def _cost(job: Job) -> int:
    failure = job.failure
    size = len(job.result) if failure is None else failure.size
    if job.progress is not None:
        size += len(job.progress)
    return size + len(job.payload) + OBJECT_BYTES
