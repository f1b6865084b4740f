"""Jobs that were accepted before: those of an earlier run, from quarantine, and of a batch that is refused."""

from __future__ import annotations

from dragoman.core.counters import Counters
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
    job.owner.principal.bytes += size
    registry.present += 1
    registry.memory.payloads += size
    if job.key is not None:
        registry.kept.keys.add(job)


def discard_job(registry: JobRegistry, counters: Counters, job: Job) -> None:
    """Undo `JobRegistry.admit`: the job is treated as not submitted. It has not been queued, delayed or stored."""
    size = len(job.payload)
    service, owner, principal = job.service, job.owner, job.owner.principal
    del registry.jobs[job.id]
    if registry.with_extras.count:
        registry.with_extras.remove(job)
    if job.options.is_limited:
        principal.waiting -= 1
        principal.waiting_bytes -= size
        principal.give_back_rate()
    service.jobs -= 1
    service.bytes -= size
    owner.jobs -= 1
    owner.bytes -= size
    principal.bytes -= size
    if not service.jobs and service.owner is not None:
        service.discharge()
    registry.present -= 1
    registry.memory.payloads -= size
    counters.accepted -= 1
    registry.conversations.forget(job)
    registry.kept.keys.remove(job)


def replace_payload(registry: JobRegistry, job: Job, payload: Payload) -> None:
    """Replace the payload of a job that waits for other jobs: its input is there."""
    change = len(payload) - len(job.payload)
    job.payload = payload
    registry.memory.payloads += change
    job.service.bytes += change
    job.owner.bytes += change
    job.owner.principal.bytes += change
    job.owner.principal.waiting_bytes += change


def set_payload(registry: JobRegistry, job: Job, payload: Payload) -> None:
    """Set a payload that was only in the store."""
    if job.state is not ENDED and job.payload is ABSENT:
        size = len(payload)
        job.payload = payload
        registry.memory.payloads += size
        job.service.bytes += size
        job.owner.bytes += size
        job.owner.principal.bytes += size
        if job.state is not RUNNING:
            job.owner.principal.waiting_bytes += size
