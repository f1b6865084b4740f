"""Ended jobs whose outcome is kept for later requests, and the idempotency keys that find them (R24)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from dragoman.core.model import Job, JobId

OBJECT_BYTES: Final = 1024  # cost of a job besides its bytes: an empty outcome is not free


class Archive:
    """Index of kept jobs by idempotency key, and their order of deletion."""

    __slots__ = ("_kept", "_keys", "_max_bytes", "_pinned", "_pinned_members", "bytes", "is_frozen", "pins")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._keys: dict[tuple[str, str, str], Job] = {}  # by principal, service and key
        self._kept: deque[Job] = deque()  # in the order they ended; some may have been dropped since
        self.pins: dict[JobId, int] = {}  # dependent jobs that wait, by the id of the job or group they wait for
        self._pinned: dict[JobId, Job] = {}  # pinned jobs that are not in `_kept` meanwhile
        self._pinned_members: dict[JobId, dict[JobId, Job]] = {}  # those among them that have a group, by its id
        self.bytes = 0
        self.is_frozen = False  # all outcomes are pinned: jobs that may need them are being restored

    def find(self, principal: str, service: str, key: str) -> Job | None:
        return self._keys.get((principal, service, key))

    def note_key(self, job: Job) -> None:
        assert job.key is not None
        self._keys[job.principal.name, job.service.name, job.key] = job

    def forget_key(self, job: Job) -> None:
        if job.key is not None:
            place = (job.principal.name, job.service.name, job.key)
            if self._keys.get(place) is job:  # otherwise a later job has the key
                del self._keys[place]

    def keep(self, job: Job, until: float) -> None:
        job.keep_until = until
        self._kept.append(job)
        self.bytes += _cost(job)

    def drop(self, job: Job) -> None:
        """Remove a job, kept or not."""
        self.forget_key(job)
        if job.is_archived:
            self.bytes -= _cost(job)
            job.keep_until = -1.0
            self._unhold(job)
            while self._kept and not self._kept[0].is_archived:
                self._kept.popleft()

    def over_limit(self) -> Iterator[Job]:
        """Yield the oldest outcomes while all of them together exceed the limit (L20). Pinned ones stay."""
        while self.bytes > self._max_bytes and self._kept and not self.is_frozen:
            oldest = self._kept[0]
            if not oldest.is_archived:
                self._kept.popleft()
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

    def _unhold(self, job: Job) -> None:
        if self._pinned.pop(job.id, None) is not None:
            group = _group_of(job)
            if group is not None:
                members = self._pinned_members[group]
                del members[job.id]
                if not members:
                    del self._pinned_members[group]


def _group_of(job: Job) -> JobId | None:
    return None if job.extras is None else job.extras.group


def _cost(job: Job) -> int:
    failure = job.failure
    size = len(job.result) if failure is None else failure.size
    if job.progress is not None:
        size += len(job.progress)
    return size + len(job.payload) + OBJECT_BYTES
