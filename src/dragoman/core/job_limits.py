"""Reasons to refuse a job because of the jobs that exist: its id is in use, or a limit is reached (R15)."""

from __future__ import annotations

from typing import Final

from dragoman.core.job_registry import JobRegistry
from dragoman.core.model import JobId, Service
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.states import RefusalReason

BEING_READ: Final = "the store is still being read, and may have this job: retry in a moment"


def id_conflict(job_registry: JobRegistry, id: JobId, job_options: JobOptions) -> tuple[RefusalReason, str] | None:
    """Return the reason to refuse an id that the caller chose, or None."""
    if id in job_registry.jobs:
        return RefusalReason.INVALID, "a job with this id already exists"
    if job_registry.is_loading and job_options.durable:
        return RefusalReason.BUSY, BEING_READ
    return None


def limit_reached(job_registry: JobRegistry, policy: Policy, service: Service, key: str | None, owner: Owner) -> str:
    """Return an error message that names the limit that one more job would exceed."""
    if job_registry.is_loading and key is not None:
        return BEING_READ
    if job_registry.present >= policy.max_jobs:
        return f"the broker holds {job_registry.present} jobs, the maximum (max_jobs); retry later"
    if service.queue.length >= policy.max_jobs_per_service:
        queued = service.queue.length
        return f"{queued} jobs wait for this service, the maximum (max_jobs_per_service); retry later"
    if owner.is_limited and owner.jobs >= policy.max_jobs_per_caller:
        return f"{owner.label} has {owner.jobs} jobs, the maximum (max_jobs_per_caller); retry when some have ended"
    return f"payloads of jobs take {job_registry.bytes} of {policy.max_memory} bytes (max_memory); retry later"
