"""The jobs of one broker of a cluster, for the list of jobs of the whole cluster: newest first, by their ids.

Ids begin with their time, so the lists of all brokers have one order, and any broker continues after any id. A broker
looks at all its jobs for each page: those of a shard that it took over are not in the order of their ids.
"""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.core.broker import Broker
from dragoman.core.model import Job
from dragoman.core.rights import Principal
from dragoman.operations.job_list import JobList
from dragoman.operations.list_schemas import ListJobsRequest
from dragoman.operations.service_views import CLUSTER


class JobsById(JobList):
    """Makes one page, in slices. Jobs that run here for other brokers are left out: those list them."""

    def __init__(self, broker: Broker, request: ListJobsRequest, principal: Principal, offset: float) -> None:
        super().__init__(broker, replace(request, after=None), principal, offset)
        self._older_than = bytes.fromhex(request.after) if request.after is not None else None

    def _search(self, is_first: bool) -> bool:
        limit, older_than = self._request.limit, self._older_than
        found = self._found
        for job in self._newest_first.slice():
            if older_than is not None and job.id >= older_than:
                continue
            if job.caller_dialect == CLUSTER or not self._sees(job):
                continue
            self._searched += 1
            if self._matches(job):
                found.append(job)
                if len(found) > 2 * limit + 64:
                    self._shorten(limit + 1)
        if not self._newest_first.is_over:
            return False
        self._shorten(limit + 1)
        has_more = len(found) > limit
        del found[limit:]
        return self._finish(found[-1] if has_more else None)

    def _shorten(self, length: int) -> None:
        self._found.sort(key=_id_of, reverse=True)
        del self._found[length:]


def _id_of(job: Job) -> bytes:
    return job.id
