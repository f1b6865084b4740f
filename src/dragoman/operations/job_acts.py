"""Acts on single jobs: retry, cancel, delete. Operations on one job and on many use the same."""

from __future__ import annotations

from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.model import Job
from dragoman.core.rights import ADMINISTER, CALL, Principal
from dragoman.core.states import ENDED, Unique
from dragoman.operations.schemas import OperationError
from dragoman.operations.visibility import owns_job, signature

LIMIT_REACHED: Final = (
    "a limit is reached (of the broker, of the service, of its caller or of its principal); retry when jobs have ended"
)


def may_retry(principal: Principal, job: Job) -> bool:
    """True if the principal may retry the job: its own, if it may call the service; all others as an administrator."""
    service = job.service.name
    return (owns_job(principal, job) and principal.may(CALL, service)) or principal.may(ADMINISTER, service)


def may_end(principal: Principal, job: Job) -> bool:
    """True if the principal may cancel or delete the job: its own, and all others as an administrator."""
    return owns_job(principal, job) or principal.may(ADMINISTER, job.service.name)


def check_retry(broker: Broker, job: Job) -> None:
    """Raise OperationError if a job is not in quarantine, or if another one that is known here holds its key."""
    if not job.quarantined or broker.jobs.get(job.id) is not job:
        state = f"ended {job.outcome}" if job.state is ENDED else f"is {job.state}"
        raise OperationError(
            "conflict", f"job {job.id.hex()} {state} and is not in quarantine; only quarantined jobs can be retried"
        )
    holder = broker.job_registry.kept.key_taken_from(job)
    if holder is not None:
        until = {Unique.WAITING: "it has started", Unique.UNFINISHED: "it has ended"}
        end = until.get(holder.options.unique, "its outcome is deleted")
        raise OperationError(
            "conflict",
            f"job {job.id.hex()} has a key that job {holder.id.hex()} holds until {end}; retry after that, or delete "
            "one of the two",
        )


def retry_job(broker: Broker, job: Job, now: float) -> Job:
    """Retry a quarantined job. Raises OperationError: `busy` if it may be possible later."""
    check_retry(broker, job)
    again = broker.operator.retry(job, now)
    if again is None:
        is_draining = broker.dispatch.is_draining
        raise OperationError("busy", "the broker is shutting down; retry later" if is_draining else LIMIT_REACHED)
    return again


def cancel_job(broker: Broker, job: Job, principal: Principal, now: float) -> None:
    """Cancel a job that has not ended. Raises OperationError."""
    by = "on request" if owns_job(principal, job) else signature(principal, "on request", "by ")
    if not broker.withdraw(job, now, f"cancelled {by}"):
        raise OperationError("conflict", f"job {job.id.hex()} has already ended: {job.outcome}")


def delete_job(broker: Broker, job: Job) -> None:
    """Delete an ended job with its outcome. Raises OperationError."""
    if job.state is not ENDED:
        raise OperationError(
            "conflict", f"job {job.id.hex()} is {job.state}; only ended jobs can be deleted: cancel it first"
        )
    if broker.jobs.get(job.id) is not job or not job.is_archived:
        raise OperationError("not found", f"job {job.id.hex()} is deleted already")
    if broker.job_registry.kept.archive.is_pinned(job):
        raise OperationError(
            "conflict",
            f"jobs that come after job {job.id.hex()} wait for its outcome; delete it when they have started, or "
            "cancel them first",
        )
    broker.job_registry.kept.erase(job, is_waited_for=True)
