"""Pages of the list of jobs, newest first, with the jobs that a principal may see (R148)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dragoman.core.broker import Broker
from dragoman.core.model import Job, JobId, Service
from dragoman.core.rights import SEE, Principal
from dragoman.operations.schemas import JobsView, ListJobsRequest, OperationError
from dragoman.operations.visibility import sees_job
from dragoman.operations.visible_views import visible_job


def list_jobs(broker: Broker, request: ListJobsRequest, principal: Principal, offset: float) -> JobsView:
    """Return one page. Raises OperationError if the principal sees no job with the id `after`."""
    found = list(islice(_matching(broker, request, principal), request.limit + 1))
    more = found[request.limit - 1].id.hex() if len(found) > request.limit else None
    return JobsView(jobs=[visible_job(job, principal, offset) for job in found[: request.limit]], after=more)


def _matching(broker: Broker, request: ListJobsRequest, principal: Principal) -> Iterator[Job]:
    newest_first = iter(reversed(broker.jobs.values()))
    if request.after is not None:
        last = broker.jobs.get(JobId(bytes.fromhex(request.after)))
        if last is None or not sees_job(principal, last):
            gone = f"the list cannot continue after job {request.after}, which was deleted; list from the start"
            raise OperationError("not found", gone)
        for job in newest_first:
            if job is last:
                break
    # Most rows may belong to others: a row costs a few lookups, and a service is judged once for each page.
    is_seen: dict[Service, bool] = {}
    sees_all = principal.rights.sees_all
    for job in newest_first:
        if not sees_all and job.owner.principal is not principal:
            service = job.service
            seen = is_seen.get(service)
            if seen is None:
                seen = is_seen[service] = principal.may(SEE, service.name)
            if not seen:
                continue
        if (
            (request.service is None or job.service.name == request.service)
            and (request.state is None or job.state == request.state)
            and (request.outcome is None or job.outcome == request.outcome)
            and (request.quarantined is None or job.quarantined == request.quarantined)
        ):
            yield job
