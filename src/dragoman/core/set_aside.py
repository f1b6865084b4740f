"""Jobs of a shard that cannot be written now: they leave their queues, so that they hold no slots of workers.

A background job that has a worker is sent when the store has committed that (R108). While one shard of a cluster cannot
be written, its jobs would take the slots of all workers without being sent, and calls and jobs of other shards would
wait for ever. So each is set aside when its turn comes, as a delayed job, and returns to its place when the shard can
be written (`store_reports.py`, R120).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from dragoman.core.events import JOB_MOVES
from dragoman.core.lifecycle import move_job
from dragoman.core.model import Job, JobId, Service
from dragoman.core.shared_state import SharedState
from dragoman.core.states import DELAYED

AT_ONCE: Final = 500  # jobs of one queue
LOOK_AGAIN: Final = 60.0  # seconds after which a job is looked at again, if nothing else happens


@final
class SetAsideJobs:
    """The jobs that are set aside, by shard."""

    __slots__ = ("_commits", "_deadlines", "_events", "jobs", "unfinished")

    def __init__(self, state: SharedState) -> None:
        self.jobs: dict[int, dict[JobId, Job]] = {}
        self.unfinished: dict[str, Service] = {}  # those with more of these jobs than one call sets aside
        self._commits = state.job_registry.pending_commits
        self._deadlines = state.deadlines
        self._events = state.events

    def concerns(self, job: Job) -> bool:
        """True if the shard of a job cannot be written now."""
        return job.options.durable and self._commits.shard(job.id) in self._commits.unwritable

    def has(self, job: Job) -> bool:
        """True if the job is set aside."""
        return job.state is DELAYED and job.id in self.jobs.get(self._commits.shard(job.id), ())

    def take(self, job: Job, now: float) -> bool:
        """Set aside a job that is in no queue. False: its shard can be written."""
        if not self.concerns(job):
            return False
        self._add(job, now)
        return True

    def _add(self, job: Job, now: float) -> None:
        job.start_at = now + LOOK_AGAIN
        move_job(job, DELAYED)
        if self._events.wanted & JOB_MOVES:
            self._events.job_moved(job)
        self._deadlines.arm(job, job.due())
        self.jobs.setdefault(self._commits.shard(job.id), {})[job.id] = job

    def skip(self, services: Iterable[Service], now: float) -> bool:
        """Set aside the first jobs of these queues, up to one that can be written. False: there are more of them."""
        return all(service.closed or self._skip(service, now) for service in services)

    def _skip(self, service: Service, now: float) -> bool:
        queue = service.queue
        for _ in range(AT_ONCE):
            job = queue.head() if queue.length else None
            if job is None or not self.concerns(job):
                return True
            queue.take(job)
            self._add(job, now)
        self.unfinished[service.name] = service
        return False
