"""Reasons to refuse a job because of the jobs that exist: its id is in use, or a limit is reached (R15, R165)."""

from __future__ import annotations

from typing import Final, final

from dragoman.core.job_registry import JobRegistry
from dragoman.core.model import JobId, Service
from dragoman.core.options import JobOptions
from dragoman.core.oversize import over_max_payload
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.rights import Principal
from dragoman.core.shares import has_queue_share, share_problem
from dragoman.core.states import RefusalReason

BEING_READ: Final = "the store is still being read, and may have this job: retry in a moment"


def id_conflict(job_registry: JobRegistry, id: JobId, job_options: JobOptions) -> tuple[RefusalReason, str] | None:
    """Return the reason to refuse an id that the caller chose, or None."""
    if id in job_registry.jobs:
        return RefusalReason.INVALID, "a job with this id already exists"
    if job_registry.is_loading and job_options.durable:
        return RefusalReason.BUSY, BEING_READ
    return None


@final
class ReachedLimit:
    """A limit that one more job would exceed. `text` is the error message, and names it."""

    __slots__ = ("name", "refusal", "text")

    def __init__(self, name: str, text: str, refusal: RefusalReason = RefusalReason.BUSY) -> None:
        self.name = name  # empty: not a limit, but the store is still being read
        self.text = text
        self.refusal = refusal


def limit_reached(
    job_registry: JobRegistry, policy: Policy, service: Service, size: int, key: str | None, owner: Owner
) -> ReachedLimit:
    """Return the limit because of which `admit` refused a job with a payload of `size` bytes."""
    if job_registry.is_loading and key is not None:
        return ReachedLimit("", BEING_READ)
    return (
        broker_limit_reached(job_registry, policy, service, size, owner.principal)
        or _caller_limit_reached(policy, owner, size)
        or principal_limit_reached(owner.principal, size)
        or _rate_reached(owner.principal)
    )


def broker_limit_reached(
    job_registry: JobRegistry, policy: Policy, service: Service, size: int, principal: Principal
) -> ReachedLimit | None:
    """Return the limit of the broker or of the service that one more job of this principal would exceed, or None."""
    if not job_registry.has_job_share(principal):
        text = f"the broker holds {job_registry.present} jobs, the maximum (max_jobs); retry later"
        if job_registry.present < policy.max_jobs:
            held = principal.waiting + principal.running + principal.taken
            text = _over_share(principal, held, job_registry.present, policy.max_jobs, "jobs", "max_jobs")
        return ReachedLimit("max_jobs", text)
    if not has_queue_share(service, policy.max_jobs_per_service, principal):
        waiting, most, name = service.queue.length, policy.max_jobs_per_service, "max_jobs_per_service"
        text = f"{waiting} jobs wait for this service, the maximum ({name}); retry later"
        if waiting < most:
            own = service.queue.members.get(principal.name)
            held = 0 if own is None else own.length
            text = _over_share(principal, held, waiting, most, "jobs that wait for this service", name)
        return ReachedLimit(name, text)
    memory = job_registry.memory
    if not memory.fits(size):
        return ReachedLimit("max_memory", f"{memory.problem()}; retry later")
    if not job_registry.has_memory_share(principal, size):
        held, most = principal.bytes, memory.payload_limit
        return ReachedLimit("max_memory", _over_share(principal, held, memory.payloads, most, "bytes", "max_memory"))
    most = policy.max_bytes_per_service
    if most and service.bytes + size > most:
        text = f"payloads of this service take {service.bytes} of {most} bytes (max_bytes_per_service); retry later"
        return ReachedLimit("max_bytes_per_service", text)
    return None


def _over_share(principal: Principal, held: int, taken: int, most: int, things: str, limit: str) -> str:
    return f"{share_problem(principal.name, held, taken, most, things, limit)}; retry when some of its jobs have ended"


def _caller_limit_reached(policy: Policy, owner: Owner, size: int) -> ReachedLimit | None:
    if not owner.is_limited:
        return None
    if owner.jobs >= policy.max_jobs_per_caller:
        text = f"{owner.label} has {owner.jobs} jobs, the maximum (max_jobs_per_caller); retry when some have ended"
        return ReachedLimit("max_jobs_per_caller", text)
    most = policy.max_bytes_per_caller
    if most and owner.bytes + size > most:
        text = f"payloads of {owner.label} take {owner.bytes} of {most} bytes (max_bytes_per_caller)"
        return ReachedLimit("max_bytes_per_caller", f"{text}; retry when some of its jobs have ended")
    return None


def principal_limit_reached(principal: Principal, size: int) -> ReachedLimit | None:
    """Return the limit of the principal that one more waiting job would exceed, or None (R165)."""
    name, limits = principal.name, principal.limits
    if limits.max_payload is not None and size > limits.max_payload:
        text = f"{over_max_payload('payload', size, limits.max_payload)} of {name}"
        return ReachedLimit("max_payload", text, RefusalReason.TOO_LARGE)
    most = principal.max_waiting
    if principal.waiting >= most:
        text = f"{name} has {principal.waiting} waiting jobs, the maximum"
        if most != limits.max_waiting:
            text += f" at this broker: in the cluster, {limits.max_waiting} may wait"
        return ReachedLimit("max_waiting", f"{text} (max_waiting of {name}); retry later")
    most = principal.max_waiting_bytes
    if principal.waiting_bytes + size > most:
        text = f"waiting jobs of {name} take {principal.waiting_bytes} of {most} bytes"
        if most != limits.max_waiting_bytes:
            text += f" at this broker: in the cluster, {limits.max_waiting_bytes} bytes may wait"
        return ReachedLimit("max_waiting_bytes", f"{text} (max_waiting_bytes of {name}); retry later")
    return None


def _rate_reached(principal: Principal) -> ReachedLimit:
    """Return the limit that is reached if no other is."""
    name, rate = principal.name, principal.limits.max_rate or 0.0
    text = f"{name} has submitted {rate:g} jobs a second, the maximum"
    if principal.share is not None:
        text = f"{name} may submit {rate:g} jobs a second in the cluster, and {principal.max_rate:.3g} here now"
    return ReachedLimit("max_rate", f"{text} (max_rate of {name}); submit more slowly")
