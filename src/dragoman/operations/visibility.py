"""Decides which services, jobs, workers and schedules a principal may see (R147, R148)."""

from __future__ import annotations

from dragoman.core.events import JOB_PROGRESS, JobEvent, WorkerEvent
from dragoman.core.groups import Group
from dragoman.core.model import Job, Worker
from dragoman.core.rights import ADMINISTER, CALL, LOCAL, SEE, WORK, Principal

ALL_SERVICES = "*"  # no service has this name in a pattern: it stands for all


def may_see_all(principal: Principal) -> bool:
    """True if the principal may see all services: metrics, and the numbers in the view of health."""
    return principal.rights.sees_all


def sees_service(principal: Principal, service: str) -> bool:
    """True if the principal may know of the service and its queue: it has one of the rights over it."""
    rights = principal.rights
    return rights.sees_all or rights.may(SEE, service) or rights.may(CALL, service) or rights.may(WORK, service)


def owns_job(principal: Principal, job: Job) -> bool:
    return job.owner.principal.name == principal.name


def sees_job(principal: Principal, job: Job) -> bool:
    """True if the principal may know of the job, its state and its outcome."""
    return principal.rights.sees_all or owns_job(principal, job) or principal.may(SEE, job.service.name)


def reads_job(principal: Principal, job: Job) -> bool:
    """True if the principal may read all about the job: payload, result, error, progress, idempotency key."""
    return principal.rights.administers_all or owns_job(principal, job) or principal.may(ADMINISTER, job.service.name)


def sees_group(principal: Principal, group: Group) -> bool:
    """True if the principal may know of the group: its own, or one whose services it may all see."""
    owns = principal.rights.sees_all or group.owner == principal.name
    return owns or all(principal.may(SEE, each) for each in group.services)


def reads_group(principal: Principal, group: Group) -> bool:
    """True if the principal may read the results of the group, and cancel it."""
    owns = principal.rights.administers_all or group.owner == principal.name
    return owns or all(principal.may(ADMINISTER, each) for each in group.services)


def owns_worker(principal: Principal, worker: Worker) -> bool:
    return worker.owner.principal.name == principal.name


def sees_worker(principal: Principal, worker: Worker) -> bool:
    """True if the principal may know of the worker: its own, or one of a service that it may see."""
    return (
        principal.rights.sees_all
        or owns_worker(principal, worker)
        or any(principal.may(SEE, each.name) for each in worker.services)
    )


def sees_schedule(principal: Principal, owner: str, service: str) -> bool:
    return owner == principal.name or principal.may(SEE, service)


def sees_job_event(principal: Principal, event: JobEvent) -> bool:
    """True if the principal may see this event of a job. Progress is content, like a result."""
    needed = ADMINISTER if event.kind == JOB_PROGRESS else SEE
    return event.owner == principal.name or principal.may(needed, event.service)


def sees_event_of(principal: Principal, kind: int, job: Job) -> bool:
    """True if the principal may see an event of this kind of a job."""
    needed = ADMINISTER if kind == JOB_PROGRESS else SEE
    return owns_job(principal, job) or principal.may(needed, job.service.name)


def services_in_event(principal: Principal, event: WorkerEvent) -> list[str] | None:
    """Return the services of the worker that the principal may see; None if it may not see the event."""
    if event.owner == principal.name or principal.rights.sees_all:
        return list(event.services)
    return [each for each in event.services if principal.may(SEE, each)] or None


def signature(principal: Principal, given: str, prefix: str = "") -> str:
    """Return the text that records who acted: `given`, for `local`; for others their name, after `prefix` (R151)."""
    return given if principal.name == LOCAL else prefix + principal.name
