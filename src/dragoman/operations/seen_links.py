"""Links of a job to other jobs, as far as a principal may see those: in views, reasons, events and ladders (R147).

Whoever enqueues a job names its parent and its predecessors, so the owner of a job knows their ids. All others see a
link only if they may see the job at its other end. A job that this broker does not have, such as one in another shard,
is not seen: its service is not known here.
"""

from __future__ import annotations

from functools import partial

from dragoman.core.broker import Broker
from dragoman.core.link_reasons import without_names
from dragoman.core.model import Job, JobId
from dragoman.core.rights import Principal
from dragoman.operations.schemas import JobView
from dragoman.operations.visibility import owns_job, sees_group, sees_job


def sees_link(principal: Principal, broker: Broker, id: JobId) -> bool:
    """True if the principal may know of the job or group with this id."""
    if principal.rights.sees_all:
        return True
    job = broker.jobs.get(id)
    if job is not None:
        return sees_job(principal, job)
    group = broker.job_registry.groups.by_id.get(id)
    return group is not None and sees_group(principal, group)


def seen_reason(reason: str, owner: str, principal: Principal, broker: Broker) -> str:
    """Return the reason of a job of this owner, without the predecessors that the principal may not see."""
    if principal.rights.sees_all:
        return reason
    return without_names(reason, partial(sees_link, principal, broker), knows_first=owner == principal.name)


def reason_of(job: Job, principal: Principal, broker: Broker) -> str:
    return seen_reason(job.reason, job.owner.principal.name, principal, broker)


def with_seen_links(view: JobView, job: Job, principal: Principal, broker: Broker) -> JobView:
    """Remove the links that the principal may not see from a view of the job."""
    if principal.rights.sees_all:
        return view
    view.reason = reason_of(job, principal, broker)
    extras = job.extras
    if extras is not None and not owns_job(principal, job):
        view.after = [each.hex() for each in extras.after if sees_link(principal, broker, each)]
        if extras.parent is not None and not sees_link(principal, broker, extras.parent):
            view.parent = None
    return view
