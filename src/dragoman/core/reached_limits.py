"""The limit because of which a waiting job may not start, in words: for `why`, and for the reason of a time-out."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dragoman.core.model import Job, Service
from dragoman.core.rights import Principal
from dragoman.core.service_limits import LimitShare, ServiceLimits

LimitKind = Literal["max_running", "service max_running", "rate", "max_running_per_tenant", "loading"]


class ReachedRunningLimit(NamedTuple):
    """A limit that holds a job back. `kind` is its name for programs."""

    kind: LimitKind
    sentence: str


def limit_in_the_way(job: Job, now: float) -> ReachedRunningLimit | None:
    """Return the limit of its service, principal or tenant that a waiting job waits for; None: there is none."""
    reached = service_limit_reached(job.service, now)
    if reached is not None:
        return reached
    principal, limits = job.principal, job.service.limits
    if principal.running >= principal.max_running:
        return ReachedRunningLimit("max_running", _principal_limit(principal))
    if limits is not None:
        tenant = limits.tenants.get((principal.name, job.tenant))
        if tenant is not None and tenant.running >= tenant.max_running:
            name = f"tenant {job.tenant} runs" if job.tenant else "jobs without a tenant count as one, which runs"
            by = f"max_running_per_tenant, {limits.setting.max_running_per_tenant_by}"
            if limits.share is not None:
                most = f"{_jobs(limits.max_running_per_tenant)} of a tenant may run in the cluster"
                here = f"{name} {_jobs(tenant.running)} at this broker, and may run {tenant.max_running} here"
                return ReachedRunningLimit("max_running_per_tenant", f"{most} ({by}); {here}")
            return ReachedRunningLimit("max_running_per_tenant", f"{name} {_jobs(tenant.running)}, the maximum ({by})")
    return None


def service_limit_reached(service: Service, now: float) -> ReachedRunningLimit | None:
    """Return the limit because of which no job of the service may start; None: there is none."""
    limits = service.limits
    if limits is None or not limits.is_full:
        return None
    setting = limits.setting
    if limits.share is not None and limits.running >= limits.max_running:
        return ReachedRunningLimit("service max_running", _in_cluster(service, limits, limits.share))
    if limits.running >= limits.max_running:
        most = f"'{service.name}' runs {_jobs(limits.running)}, the maximum (max_running, {setting.max_running_by})"
        return ReachedRunningLimit("service max_running", most)
    if limits.is_loading:
        reading = f"jobs of the last run are still being read, and some of '{service.name}' may run (max_running)"
        return ReachedRunningLimit("loading", reading)
    if limits.share is not None:
        rate = f"'{service.name}' has the rate {setting.rate} in the cluster ({setting.rate_by})"
        return ReachedRunningLimit("rate", f"{rate}, and this broker waits for its next start")
    left = max(0.0, limits.next_start - now)
    following = f"the next starts in {left:.1f} s" if left < 10 else f"the next starts in {left:.0f} s"
    return ReachedRunningLimit("rate", f"'{service.name}' has the rate {setting.rate}: {following} ({setting.rate_by})")


def _in_cluster(service: Service, limits: ServiceLimits, share: LimitShare) -> str:
    """`'resize' runs 4 of 4 jobs in the cluster (max_running, set by local): 1 at eu1, 3 at eu2`."""
    setting = limits.setting
    by = f"max_running, {setting.max_running_by}"
    return _of_cluster(f"'{service.name}'", setting.max_running or 0, by, share.slots, share.running)


def _principal_limit(principal: Principal) -> str:
    """`web runs 4 of 4 jobs in the cluster (max_running of web): 1 at eu1, 3 at eu2`."""
    name, share = principal.name, principal.share
    if share is None:
        return f"{name} runs {_jobs(principal.running)}, the maximum (max_running of {name})"
    most = principal.limits.max_running or 0
    return _of_cluster(name, most, f"max_running of {name}", principal.max_running, share.running)


def _of_cluster(party: str, most: int, by: str, slots: int, running: dict[str, int]) -> str:
    """`running`: jobs by broker. `slots`: those that this broker may run."""
    total = sum(running.values())
    places = ", ".join(f"{count} at {name}" for name, count in running.items() if count)
    where = f": {places}" if places else ""
    if slots or total >= most:
        return f"{party} runs {total} of {_jobs(most)} in the cluster ({by}){where}"
    return (
        f"{party} may run {_jobs(most)} in the cluster ({by}){where}, "
        "and the broker that has shard 0 has granted this one none yet"
    )


def limit_of_queue(service: Service, now: float) -> str | None:
    """Return the sentence about the limit of a service because of which its jobs wait; None: there is none."""
    if not service.queue.length:
        return None
    reached = service_limit_reached(service, now)
    if reached is not None:
        return reached.sentence
    limits = service.limits
    if limits is None or not limits.limits_tenants or not (service.idle.length or service.held_back.length):
        return None
    setting = limits.setting
    most = f"{_jobs(limits.max_running_per_tenant)}, the maximum (max_running_per_tenant"
    return f"each tenant whose jobs wait for '{service.name}' runs {most}, {setting.max_running_per_tenant_by})"


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"
