"""Finds the jobs, services, workers and schedules that requests name.

The error for a target that the principal may not know of is the error for one that does not exist (R147).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.groups import Group
from dragoman.core.model import Job, JobId, Service, Worker, WorkerId
from dragoman.core.quarantine import GroupPart
from dragoman.core.states import DONE, ENDED
from dragoman.operations.scheduler import Schedule, Scheduler
from dragoman.operations.schemas import OperationError

LOADING: Final = "jobs of the last run are still being read; retry in a second"


class Targets:
    """Each method raises OperationError if there is no such target."""

    def __init__(self, broker: Broker, scheduler: Scheduler) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self.job_elsewhere: Callable[[bytes], str | None] = here  # the reason why another broker has a job

    def job(self, id: str) -> Job:
        job = self._broker.jobs.get(JobId(bytes.fromhex(id)))
        if job is None:
            raise self.missing_job(id)
        return job

    def missing_job(self, id: str) -> OperationError:
        if self._broker.job_registry.is_loading:
            return OperationError("loading", LOADING)
        reason = self.job_elsewhere(bytes.fromhex(id))
        if reason is not None:
            return OperationError("partitioned", reason)
        return OperationError("not found", f"no job has id {id}: it never existed, or its outcome was deleted")

    def retried(self, job: Job) -> Job | None:
        """Job that an earlier retry of this one created, or None. Raises OperationError if that job has failed."""
        if job.retried_as is None:
            return None
        again = self._broker.jobs.get(job.retried_as)
        if again is not None and (again.state is not ENDED or again.outcome is DONE):
            return again
        name = job.retried_as.hex()
        if again is None:
            raise OperationError("conflict", f"it was retried already, as job {name}, whose outcome was deleted")
        advice = "; retry that one" if again.quarantined else ""
        raise OperationError("conflict", f"it was retried already, as job {name}, which ended {again.outcome}{advice}")

    def service(self, name: str) -> Service:
        service = self._broker.worker_registry.services.get(name)
        if service is None:
            raise OperationError("not found", f"no service is named {name!r}: no worker offers it, and it has no jobs")
        return service

    def worker(self, id: int) -> Worker:
        worker = self._broker.worker_registry.workers.get(WorkerId(id))
        if worker is None:
            raise self.missing_worker(id)
        return worker

    def missing_worker(self, id: int) -> OperationError:
        return OperationError("not found", f"no worker has id {id}: it has left, or never joined")

    def group(self, id: str) -> Group:
        group = self._broker.job_registry.groups.by_id.get(JobId(bytes.fromhex(id)))
        if group is None or self._broker.job_registry.is_loading:
            raise self.missing_group(id)
        return group

    def missing_group(self, id: str) -> OperationError:
        if self._broker.job_registry.is_loading:
            return OperationError("loading", LOADING)
        return OperationError("not found", f"no group has id {id}: it never existed, or its outcomes were deleted")

    def quarantine_group(self, id: str) -> list[GroupPart]:
        """Return the parts of a group of quarantined jobs."""
        parts = self._broker.job_registry.kept.quarantine.parts_of(id)
        if not parts:
            raise self.missing_quarantine_group(id)
        return parts

    def missing_quarantine_group(self, id: str) -> OperationError:
        if self._broker.job_registry.is_loading:
            return OperationError("loading", LOADING)
        detail = f"no group of the quarantine has id {id}: it never existed, or all its jobs have left the quarantine"
        return OperationError("not found", detail)

    def schedule(self, name: str) -> Schedule:
        return self._scheduler.find(name)

    def has_schedule(self, name: str) -> bool:
        return self._scheduler.has(name)

    def missing_schedule(self, name: str) -> OperationError:
        return self._scheduler.missing(name)


def here(id: bytes) -> str | None:
    """A broker without a cluster has all jobs."""
    return None
