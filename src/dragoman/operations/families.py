"""Parents and children of a job in its view, as far as the principal may see both."""

from __future__ import annotations

from itertools import islice
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.model import Job
from dragoman.core.rights import Principal
from dragoman.operations.schemas import ChildView, JobView
from dragoman.operations.seen_links import with_seen_links
from dragoman.operations.visibility import owns_job, sees_job, sees_service

MOST_CHILDREN: Final = 100  # in a view
MOST_COUNTED: Final = 10_000  # children that are looked at


def with_family(view: JobView, job: Job, principal: Principal, broker: Broker) -> JobView:
    """Add the parent, if the principal may see that job, and the children that it may see. A caller may name any id as
    the parent of its job, so neither side learns of the other by that: a child counts if its owner has a right
    over the service of the parent (R200). Links that the principal may not see are removed."""
    extras, index = job.extras, broker.job_registry.with_extras
    if view.parent is None and extras is not None and extras.parent is not None:
        parent = broker.jobs.get(extras.parent)
        if parent is not None and sees_job(principal, parent):
            view.parent = extras.parent.hex()
    children = index.children_of(job.id)
    if children:
        looked_at = islice(reversed(children.values()), MOST_COUNTED)
        seen = [each for each in looked_at if sees_job(principal, each) and is_child(each, job)]
        view.children = [_child(each) for each in seen[:MOST_CHILDREN]]
        view.more_children = len(seen) - len(view.children)
    return with_seen_links(view, job, principal, broker)


def is_child(child: Job, parent: Job) -> bool:
    """True if a handler of the parent may have submitted the child: its owner has any right over that service."""
    owner = child.owner.principal
    return owns_job(owner, parent) or sees_service(owner, parent.service.name)


def _child(job: Job) -> ChildView:
    return ChildView(
        id=job.id.hex(),
        service=job.service.name,
        state=job.state.value,
        outcome=job.outcome.value if job.outcome is not None else None,
        background=job.options.durable,
    )
