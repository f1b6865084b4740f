"""Views of jobs, workers and the broker, without what a principal may not see (R147, R148)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from dragoman.core.broker import Broker
from dragoman.core.model import Job, Worker
from dragoman.core.recipients import Recipient
from dragoman.core.rights import SEE, Principal
from dragoman.operations.schemas import HealthView, JobView, WorkerView
from dragoman.operations.seen_links import with_seen_links
from dragoman.operations.views import job_view, outline, worker_view
from dragoman.operations.visibility import may_see_all, owns_worker, reads_job, sees_job


def visible_job(job: Job, principal: Principal, broker: Broker, offset: float) -> JobView:
    """Return the view of a job that the principal may see."""
    view = job_view(job, offset) if reads_job(principal, job) else outline(job, offset)
    return with_seen_links(view, job, principal, broker)


def visible_worker(
    worker: Worker, principal: Principal, now: float, offset: float, listeners: Mapping[Recipient, str]
) -> WorkerView:
    """Return the view of a worker, without services and jobs that the principal may not see."""
    view = worker_view(worker, now, offset, listeners)
    if may_see_all(principal) or owns_worker(principal, worker):
        return view
    services = [name for name in view.services if principal.may(SEE, name)]
    running = [each.job.id.hex() for each in worker.running.values() if sees_job(principal, each.job)]
    holds = [each for each in view.holds if each.job in running]
    stuck = sum(sees_job(principal, each.job) for each in worker.stuck.values())
    if len(services) < len(view.services):
        view.done = view.undone = None  # it does not count them by service
    return replace(view, services=services, running=running, holds=holds, stuck=stuck)


def visible_health(view: HealthView, principal: Principal) -> HealthView:
    """Return the state of the broker, with reasons and numbers only if the principal may see all services."""
    if may_see_all(principal):
        return view
    return replace(view, problems=[], degraded=[], replicas="", jobs=None, workers=None, peers=None)
