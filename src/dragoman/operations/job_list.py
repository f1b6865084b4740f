"""Pages of the list of jobs, newest first, with the jobs that a principal may see (R148)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dragoman.core.broker import Broker
from dragoman.core.model import Job, JobId
from dragoman.core.rights import Principal
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
    sees_all = principal.rights.sees_all
    for job in newest_first:
        if (
            (request.service is None or job.service.name == request.service)
            and (request.state is None or job.state == request.state)
            and (request.outcome is None or job.outcome == request.outcome)
            and (request.quarantined is None or job.quarantined == request.quarantined)
            and (sees_all or sees_job(principal, job))
        ):
            yield job
