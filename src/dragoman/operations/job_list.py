"""Pages of the list of jobs, newest first, with the jobs that a principal may see (R148)."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from dragoman.core.broker import Broker
from dragoman.core.job_counts import count_all
from dragoman.core.model import Job, JobId, Service
from dragoman.core.rights import SEE, Principal
from dragoman.operations.families import is_child
from dragoman.operations.job_filter import JobFilter
from dragoman.operations.list_schemas import MOST_SEARCHED, JobsView, ListJobsRequest
from dragoman.operations.schemas import JobView, OperationError
from dragoman.operations.slices import RowReader
from dragoman.operations.visibility import sees_job
from dragoman.operations.visible_views import visible_job


class JobList:
    """Makes one page, in slices."""

    def __init__(self, broker: Broker, request: ListJobsRequest, principal: Principal, offset: float) -> None:
        """Raises OperationError if the principal sees no job with the id `after`."""
        self._broker = broker
        self._request = request
        self._principal = principal
        self._offset = offset
        self._newest_first = RowReader(_newest_first(broker, request))
        self._after: Job | None = None  # the list begins behind this job, which has not been reached yet
        if request.after is not None:
            self._after = broker.jobs.get(JobId(bytes.fromhex(request.after)))
            if self._after is None or not sees_job(principal, self._after):
                gone = f"the list cannot continue after job {request.after}, which was deleted; list from the start"
                raise OperationError("not found", gone)
        # Most rows may belong to others: a row costs a few lookups, and a service is judged once for each page.
        self._is_seen: dict[Service, bool] = {}
        self._found: list[Job] = []
        self._filter = JobFilter(
            principal,
            broker,
            offset,
            kind=request.kind,
            caller=request.caller,
            worker=request.worker,
            text=request.text,
            reason=request.reason,
            since=request.since,
            until=request.until,
            undone=request.undone,
        )
        self._searched = 0
        self._last: Job | None = None  # the last job that was looked at
        is_counted = request.state is not None and request.group is None and request.parent is None
        self._in_state = jobs_in_state(broker, request.state) if is_counted and request.state is not None else None
        self._is_first = True
        self._end: Job | None = None
        self._found_rows: RowReader[Job] | None = None  # jobs of the page, once the search has ended
        self._views: list[JobView] = []

    def step(self, now: float) -> JobsView | None:
        """Look at the next jobs, then make the next views. Returns None if there are more."""
        if self._found_rows is None:
            is_first, self._is_first = self._is_first, False
            if not self._search(is_first) or not is_first:  # else the views would be a second slice
                return None
        assert self._found_rows is not None
        for job in self._found_rows.slice():
            self._views.append(visible_job(job, self._principal, self._broker, self._offset))
        if not self._found_rows.is_over:
            return None
        return JobsView(
            jobs=self._views,
            after=self._end.id.hex() if self._end is not None else None,
            searched=self._searched,
            complete=self._end is None,
        )

    def _search(self, is_first: bool) -> bool:
        """Look at the next jobs. Returns whether these were the last. `is_first`: the first slice, in which the exact
        numbers of jobs by state are still true."""
        limit = self._request.limit
        left = self._in_state if is_first else None
        most = MOST_SEARCHED if self._filter.is_used else sys.maxsize
        for job in self._newest_first.slice():
            if left == 0:
                return self._finish(None)
            if left is not None and job.state == self._request.state:
                left -= 1
            if self._after is not None:
                if job is self._after:
                    self._after = None
                continue
            if not self._sees(job):
                continue
            if self._searched >= most:
                return self._finish(self._last)
            self._searched += 1
            if self._matches(job):
                if len(self._found) == limit:
                    return self._finish(self._found[-1])
                self._found.append(job)
            self._last = job
            if self._filter.is_used and self._principal.rights.sees_all:
                self._newest_first.most_left = most - self._searched + 1
        return self._finish(None) if self._newest_first.is_over else False

    def _finish(self, end: Job | None) -> bool:
        """End the search. `end`: the job after which the list continues; None: there are no more."""
        self._end = end
        self._found_rows = RowReader(self._found)
        return True

    def _sees(self, job: Job) -> bool:
        principal = self._principal
        if principal.rights.sees_all or job.owner.principal is principal:
            return True
        service = job.service
        seen = self._is_seen.get(service)
        if seen is None:
            seen = self._is_seen[service] = principal.may(SEE, service.name)
        return seen

    def _matches(self, job: Job) -> bool:
        request = self._request
        return (
            (request.service is None or job.service.name == request.service)
            and (request.state is None or job.state == request.state)
            and (request.outcome is None or job.outcome == request.outcome)
            and (request.quarantined is None or job.quarantined == request.quarantined)
            and (not self._filter.is_used or self._filter.matches(job))
        )


def _newest_first(broker: Broker, request: ListJobsRequest) -> Iterable[Job]:
    """Return all jobs, or those of a group or of a parent."""
    registry, parent = broker.job_registry, None
    if request.parent is not None:
        parent = JobId(bytes.fromhex(request.parent))
    if request.group is not None:
        found = registry.groups.by_id.get(JobId(bytes.fromhex(request.group)))
        members = [] if found is None else [job for job in reversed(found.jobs) if job is not None]
        return [job for job in members if parent is None or (job.extras is not None and job.extras.parent == parent)]
    if parent is None:
        return reversed(broker.jobs.values())
    known, children = broker.jobs.get(parent), reversed(registry.with_extras.children_of(parent).values())
    return children if known is None else (each for each in children if is_child(each, known))


def jobs_in_state(broker: Broker, state: str) -> int:
    """Return the exact number of jobs in a state."""
    counts = count_all(broker)
    return {
        "dependent": counts.dependent,
        "waiting": counts.waiting,
        "delayed": counts.delayed,
        "running": counts.running,
        "ended": counts.done + counts.undone,
    }[state]
