"""Background jobs that wait for a worker that knows all their parameters (R269).

A worker has refused such a job, so it is in no queue: it is *delayed*, and goes to workers only that have declared the
parameters that it needs. `Dispatch.freed` looks here when a slot becomes free, `Delays.seek` when a delay ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, final

from dragoman.core.model import Job, JobId, Worker
from dragoman.core.states import DELAYED
from dragoman.core.worker_registry import declares

MOST_SEEN: Final = 16  # jobs with the same needs that are looked at for one free slot: others may wait for limits

ByNeeds = dict[tuple[str, ...], dict[JobId, Job]]


@final
class JobsForKnowingWorkers:
    """The waiting jobs, by service and by the parameters that they need, those that have waited longest first. Jobs
    that have ended or left the broker are dropped when they are found. While `count` is 0, other jobs cost nothing."""

    __slots__ = ("_jobs", "_present", "count")

    def __init__(self, present: dict[JobId, Job]) -> None:
        self.count = 0
        self._jobs: dict[str, ByNeeds] = {}
        self._present = present  # all jobs of the broker

    def add(self, job: Job) -> None:
        same = self._jobs.setdefault(job.service.name, {}).setdefault(job.needs, {})
        if job.id not in same:
            same[job.id] = job
            self.count += 1

    def remove(self, job: Job) -> None:
        """Forget a job that waits no more. It may not be here."""
        by_needs = self._jobs.get(job.service.name)
        same = by_needs.get(job.needs) if by_needs is not None else None
        if by_needs is None or same is None or same.pop(job.id, None) is None:
            return
        self.count -= 1
        if not same:
            del by_needs[job.needs]
            if not by_needs:
                del self._jobs[job.service.name]

    def known_by(self, worker: Worker) -> Iterator[Job]:
        """Yield the first jobs of each kind that this worker knows all parameters of."""
        for service in worker.services:
            for needs, same in list(self._jobs.get(service.name, {}).items()):
                if declares(worker, service, needs):
                    for job in list(islice(same.values(), MOST_SEEN)):
                        if job.state is DELAYED and self._present.get(job.id) is job:
                            yield job
                        else:
                            self.remove(job)
