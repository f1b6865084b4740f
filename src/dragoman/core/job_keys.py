"""Idempotency keys: finds the latest job that has a key (R24).

A key belongs to one principal and one service. Several jobs may have the same key, because a job may give it up before
its outcome is deleted. Only the latest of them decides whether the key is free; when it is deleted, the one before it
is the latest again.
"""

from __future__ import annotations

from typing import Final

from dragoman.core.model import Job, JobId
from dragoman.core.states import ENDED, Unique

Place = tuple[str, str, str]  # principal, service, key
NO_JOBS: Final[dict[JobId, Job]] = {}


def holds_key(job: Job) -> bool:
    """True if a submit with the key of this job returns the job, and does not make another one."""
    if job.retried_as is not None:
        return False  # the job that retries it has the key, too
    unique = job.options.unique
    if unique is Unique.KEPT:
        return True
    return job.state is not ENDED and (unique is Unique.UNFINISHED or not has_started(job))


def has_started(job: Job) -> bool:
    """True from its first dispatch on. A dispatch that used up no attempt does not count, once it has ended (R8)."""
    return job.spent > 0 or (job.attempt is not None and job.attempt.is_sent)


class JobKeys:
    """Index of all jobs that have a key."""

    __slots__ = ("_earlier", "_latest")

    def __init__(self) -> None:
        self._latest: dict[Place, Job] = {}
        self._earlier: dict[Place, dict[JobId, Job]] = {}  # of keys that several jobs have: all but the latest

    def find(self, principal: str, service: str, key: str) -> Job | None:
        """Return the latest job with this key, whether it holds the key or not."""
        return self._latest.get((principal, service, key))

    def find_of(self, job: Job) -> Job | None:
        """Return the latest job with the key of this job."""
        assert job.key is not None
        return self._latest.get((job.principal.name, job.service.name, job.key))

    def add(self, job: Job) -> None:
        """Add a job that was submitted after all others with its key. A job that is there already keeps its place."""
        assert job.key is not None
        place = (job.principal.name, job.service.name, job.key)
        latest = self._latest.get(place)
        if latest is not None and latest is not job:
            earlier = self._earlier.setdefault(place, {})
            if job.id in earlier:
                return
            earlier[latest.id] = latest
        self._latest[place] = job

    def remove(self, job: Job) -> None:
        """Remove a job, with or without a key."""
        if job.key is None:
            return
        place = (job.principal.name, job.service.name, job.key)
        earlier = self._earlier.get(place)
        if self._latest.get(place) is job:
            if earlier is None:
                del self._latest[place]
            else:
                self._latest[place] = earlier.popitem()[1]
        elif earlier is not None:
            earlier.pop(job.id, None)
        if earlier is not None and not earlier:
            del self._earlier[place]

    def jobs_of(self, place: Place) -> list[Job]:
        """Return all jobs with a key, in the order in which they were submitted."""
        latest = self._latest.get(place)
        return [*self._earlier.get(place, NO_JOBS).values(), *([] if latest is None else [latest])]

    def places(self) -> list[Place]:
        return list(self._latest)
