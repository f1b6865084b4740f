"""Jobs that were accepted before: those of an earlier run, and from quarantine. Limits do not apply to them."""

from __future__ import annotations

from dragoman.core.job_registry import JobRegistry
from dragoman.core.model import ABSENT, Job, Payload
from dragoman.core.states import ENDED, RUNNING


def enter_job(registry: JobRegistry, job: Job) -> None:
    """Add a job of an earlier run, or from quarantine."""
    registry.jobs[job.id] = job
    size = len(job.payload)
    job.service.jobs += 1
    job.service.bytes += size
    job.owner.jobs += 1
    job.owner.bytes += size
    registry.present += 1
    registry.memory.payloads += size
    if job.key is not None:
        registry.kept.keys.add(job)


def set_payload(registry: JobRegistry, job: Job, payload: Payload) -> None:
    """Set a payload that was only in the store."""
    if job.state is not ENDED and job.payload is ABSENT:
        size = len(payload)
        job.payload = payload
        registry.memory.payloads += size
        job.service.bytes += size
        job.owner.bytes += size
        if job.state is not RUNNING:
            job.owner.principal.waiting_bytes += size
