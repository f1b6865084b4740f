"""Admission checks for jobs and workers: draining, names, unknown services, rights; reasons of some outcomes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from dragoman.core.model import Job, Service
from dragoman.core.names import is_name
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.rights import WORK, Principal
from dragoman.core.service_names import ServiceNames
from dragoman.core.states import RefusalReason

DEADLINE_PASSED: Final = "its deadline passed"
CALLER_GONE: Final = "its caller has gone"
GIVEN_BACK: Final = "given back by its worker"
STOPPED: Final = "the broker stopped while it ran"
BROKER_STOPS: Final = "the broker stops"
REFUSED_DRAINING: Final = f"{RefusalReason.DRAINING}: the broker is about to stop"


def refusal_when_draining(job: Job) -> RefusalReason | None:
    """Return the kind of refusal of a call that the broker does not finish before it stops. One that a worker may have
    seen has none: its client would submit it at another broker, with all its attempts."""
    return RefusalReason.DRAINING if not job.spent else None


def refusal_for(
    name: str, service: Service | None, job_options: JobOptions, policy: Policy, is_draining: bool, owner: Owner
) -> tuple[RefusalReason, str] | None:
    """Return the reason to refuse a job for this service, or None. `service` is None if the name is unknown."""
    if is_draining:
        return RefusalReason.DRAINING, "the broker is about to stop"
    if service is None and not is_name(name, policy.max_service_bytes):
        return RefusalReason.INVALID, f"a service name is 1 to {policy.max_service_bytes} bytes of visible text"
    if service is not None and service.is_partitioned and not service.is_known and not job_options.waits:
        return RefusalReason.PARTITIONED, f"workers for '{name}' are at brokers that are not heard now; retry later"
    if not job_options.waits and (service is None or not service.is_known):
        return RefusalReason.NO_SUCH_SERVICE, f"no worker offers '{name}'"
    if owner.is_limited and owner.names >= policy.max_services_per_caller and (service is None or not service.jobs):
        return RefusalReason.BUSY, (
            f"{owner.label} has jobs for {owner.names} names that no worker has offered; at most "
            f"{policy.max_services_per_caller} are allowed (max_services_per_caller): start workers for them, or wait "
            "until their jobs have ended"
        )
    return None


def can_offer(services: Collection[str], policy: Policy) -> bool:
    """True if these services can be offered by one worker: not too many, and all names are valid."""
    if not 0 < len(services) <= policy.max_services_per_worker:
        return False
    return all(is_name(each, policy.max_service_bytes) for each in services)


def forbidden_work(principal: Principal, services: Iterable[str]) -> str | None:
    """Return the reason why the principal may not offer all of these services, or None if it may."""
    missing = [each for each in services if not principal.may(WORK, each)]
    return f"{principal.name} may not work for {', '.join(map(repr, missing))}" if missing else None


def join_refusal(principal: Principal, services: Collection[str], policy: Policy) -> tuple[RefusalReason, str]:
    """Return the reason for which the broker did not let a worker join. Every dialect answers it in its own way."""
    if not can_offer(services, policy):
        return RefusalReason.INVALID, "services cannot be offered: too many, or not valid names"
    forbidden = forbidden_work(principal, services)
    if forbidden is not None:
        return RefusalReason.FORBIDDEN, forbidden
    return (
        RefusalReason.BUSY,
        "as many services exist as it may add to (max_services); raise the limit",
    )


def too_many_services(names: ServiceNames, owner: Owner) -> tuple[RefusalReason, str]:
    return RefusalReason.BUSY, f"{names.problem(owner)}; raise the limit"
