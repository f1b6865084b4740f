"""Ended jobs whose outcome is kept for later requests, in the order of their deletion."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from dragoman.core.infinity import inf
from dragoman.core.model import Job, JobId

FOREVER: Final = 1e300  # `keep_until` of an outcome that is kept until it is deleted
OBJECT_BYTES: Final = 1024  # cost of a job besides its bytes: an empty outcome is not free
SWEEP_FLOOR: Final = 64  # entries of dropped jobs that are not worth a sweep


def keeps_forever(job: Job) -> bool:
    """True if its outcome is kept until it is deleted. What only memory has ends with the broker."""
    return job.options.keep == inf and job.options.durable


class Archive:
    """The kept jobs and their bytes. Outcomes that are kept until they are deleted are exempt from both."""

    __slots__ = ("_dropped", "_kept", "_max_bytes", "_pinned", "_pinned_members", "bytes", "is_frozen", "pins")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: deque[Job] = deque()  # in the order they ended, each once; some may have been dropped since
        self._dropped = 0  # entries of jobs that were dropped
        self.pins: dict[JobId, int] = {}  # dependent jobs that wait, by the id of the job or group they wait for
        self._pinned: dict[JobId, Job] = {}  # pinned jobs that are not in `_kept` meanwhile
        self._pinned_members: dict[JobId, dict[JobId, Job]] = {}  # those among them that have a group, by its id
        self.bytes = 0
        self.is_frozen = False  # all outcomes are pinned: jobs that may need them are being restored

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
            if not self._unhold(job):
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
        """Yield the oldest outcomes while all of them together exceed the limit (L20). Pinned ones stay."""
        while self.bytes > self._max_bytes and self._kept and not self.is_frozen:
            oldest = self._kept[0]
            if not oldest.is_archived:
                self._kept.popleft()
                self._dropped -= 1
            elif self.is_pinned(oldest):
                self._kept.popleft()
                self._hold(oldest)
            else:
                yield oldest

    # ---------------------------------------------------------------- outcomes that dependent jobs need (R192)

    def pin(self, id: JobId) -> None:
        """Keep the outcome of a job, or of all jobs of a group: one more dependent job waits for it."""
        self.pins[id] = self.pins.get(id, 0) + 1

    def unpin(self, id: JobId) -> None:
        """Undo one `pin`."""
        left = self.pins[id] - 1
        if left:
            self.pins[id] = left
            return
        del self.pins[id]
        job = self._pinned.get(id)
        members = self._pinned_members.get(id)
        held = [job] if job is not None else list(members.values()) if members is not None else []
        for each in held:
            if not self.is_pinned(each):
                self._unhold(each)
                self._kept.appendleft(each)

    def is_pinned(self, job: Job) -> bool:
        """True if a dependent job needs this outcome."""
        if self.is_frozen or not self.pins:
            return self.is_frozen
        group = _group_of(job)
        return job.id in self.pins or (group is not None and group in self.pins)

    def _hold(self, job: Job) -> None:
        self._pinned[job.id] = job
        group = _group_of(job)
        if group is not None:
            self._pinned_members.setdefault(group, {})[job.id] = job

    def _unhold(self, job: Job) -> bool:
        """Undo `_hold`. False: it is not held."""
        if self._pinned.pop(job.id, None) is None:
            return False
        group = _group_of(job)
        if group is not None:
            members = self._pinned_members[group]
            del members[job.id]
            if not members:
                del self._pinned_members[group]
        return True

    @property
    def entries(self) -> int:
        """Number of entries in the order of deletion, with those of dropped jobs."""
        return len(self._kept)


def _group_of(job: Job) -> JobId | None:
    return None if job.extras is None else job.extras.group


def _cost(job: Job) -> int:
    failure = job.failure
    size = len(job.result) if failure is None else failure.size
    if job.progress is not None:
        size += len(job.progress)
    return size + len(job.payload) + OBJECT_BYTES
