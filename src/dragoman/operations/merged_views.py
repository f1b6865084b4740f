"""Merges the views of several brokers of a cluster into one: lists in one order, numbers added up.

Each broker answers with its own part only (`service_views.py`, `jobs_by_id.py`), so that nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from dragoman.operations.bulk_schemas import FIRST_JOBS, BulkRequest, BulkView
from dragoman.operations.list_schemas import (
    FleetView,
    JobCountsView,
    JobsView,
    ListJobsRequest,
    ListServicesRequest,
    ListWorkersRequest,
    ServicesView,
    WorkerCountsView,
    WorkersView,
)
from dragoman.operations.merged_dashboard import merge_overview, merge_series
from dragoman.operations.merged_services import Parts, added, earliest, merge_service
from dragoman.operations.quarantine_schemas import (
    QuarantineGroupView,
    QuarantineView,
    RetryGroupRequest,
    RetryGroupView,
)
from dragoman.operations.ranking import Cursor, FirstRows, Rank, read_cursor
from dragoman.operations.schemas import JobView, PurgeView, SchedulesView, ServiceView, WorkerView
from dragoman.operations.service_list import service_order, service_rank
from dragoman.operations.worker_list import MOST_SQUARES, WORST_FIRST, worker_order
from dragoman.operations.worker_need import SILENT, SILENT_SEVERITY, STATE_SEVERITIES

LEAST_RATE: Final = 0.1  # jobs a second, of one retried group at one broker


class Merger(NamedTuple):
    """`request` returns the request for each of a number of brokers, `merge` the merged view."""

    request: Callable[[Any, int], Any]
    merge: Callable[[Any, Parts, float], Any]


def same(request: Any, brokers: int) -> Any:
    return request


# ---------------------------------------------------------------- jobs


def merge_jobs(request: ListJobsRequest, parts: Parts, now: float) -> JobsView:
    rows: dict[str, JobView] = {}  # a job that moves to another broker just now may be listed twice
    for broker, part in parts.items():
        for job in part.jobs:
            job.broker = broker
            rows.setdefault(job.id, job)
    page = sorted(rows.values(), key=lambda job: job.id, reverse=True)
    has_more = len(page) > request.limit or any(part.after is not None for part in parts.values())
    del page[request.limit :]
    after = page[-1].id if has_more and page else None
    searched = sum(part.searched for part in parts.values())
    return JobsView(jobs=page, after=after, searched=searched, complete=after is None)


def merge_job_counts(request: Any, parts: Parts, now: float) -> JobCountsView:
    views: list[JobCountsView] = list(parts.values())
    return JobCountsView(
        waiting=sum(each.waiting for each in views),
        delayed=sum(each.delayed for each in views),
        running=sum(each.running for each in views),
        done=sum(each.done for each in views),
        undone=sum(each.undone for each in views),
        quarantined=sum(each.quarantined for each in views),
        dependent=sum(each.dependent for each in views),
    )


# ---------------------------------------------------------------- services


def all_services(request: ListServicesRequest, brokers: int) -> ListServicesRequest:
    """Each broker lists all: the place of a service in the list is that of its sums."""
    return ListServicesRequest(text=request.text)


def merge_services(request: ListServicesRequest, parts: Parts, now: float) -> ServicesView:
    found: dict[str, dict[str, ServiceView]] = {}
    for broker, part in parts.items():
        for view in part.services:
            found.setdefault(view.name, {})[broker] = view
    order = service_order(request)
    cursor = read_cursor(request.after, now, has_text_keys=order == "name", has_numbers=False)
    rows: FirstRows[ServiceView] = FirstRows(request.limit, cursor)
    for position, views in enumerate(found.values()):
        merged = merge_service(None, views, now)
        rows.offer(service_rank(merged, order, position), merged)
    page, after = rows.page()
    return ServicesView(services=page, after=after)


def merge_purge(request: Any, parts: Parts, now: float) -> PurgeView:
    return PurgeView(name=request.name, purged=sum(each.purged for each in parts.values()))


# ---------------------------------------------------------------- workers


def merge_workers(request: ListWorkersRequest, parts: Parts, now: float) -> WorkersView:
    order = worker_order(request)
    limit = request.limit
    rows: FirstRows[WorkerView] = FirstRows(limit, Cursor(now))
    position = 0
    for broker, part in parts.items():
        for view in part.workers:
            view.broker = broker
            rows.offer(worker_rank(view, order, position, now), view)
            position += 1
    page, _ = rows.page()
    has_more = limit is not None and (position > limit or any(each.after is not None for each in parts.values()))
    after = None
    if has_more and page:  # without its time: the clocks of brokers differ
        after = "/" + Cursor(now).text_after(worker_rank(page[-1], order, 0, now)).split("/", 1)[1]
    all_counts = [each.counts for each in parts.values()]
    counts = None
    if all(each is not None for each in all_counts):
        counts = WorkerCountsView(
            state=added(each.state for each in all_counts), dialect=added(each.dialect for each in all_counts)
        )
    return WorkersView(workers=page, counts=counts, after=after)


def worker_rank(view: WorkerView, order: str, position: int, now: float) -> Rank:
    """Return the rank of a worker in the list, as its own broker computes it (`worker_list.py`)."""
    silence = view.silent / view.lease if view.lease else 0.0
    match order:
        case "need":
            severity = STATE_SEVERITIES.get(view.state, 0.0)
            if not view.running:
                return -severity * 1e3, view.id
            if silence > SILENT:
                severity = max(severity, SILENT_SEVERITY)
            return -(severity * 1e3 + silence * 100.0), view.id
        case "slow":
            return -(view.pace or 0.0), view.id
        case "silent":
            return -silence, view.id
        case "name":
            return view.name, view.id
        case "number":
            return 0.0, view.id
    return 0.0, position


def merge_fleet(request: Any, parts: Parts, now: float) -> FleetView:
    """Put the squares of all brokers one after the other, several into one if there are too many."""
    views: list[FleetView] = list(parts.values())
    states, ids = "".join(each.states for each in views), [id for each in views for id in each.ids]
    step = max(1, -(-len(states) // MOST_SQUARES))
    chosen = [
        min(range(start, min(start + step, len(states))), key=lambda at: WORST_FIRST.index(states[at]))
        for start in range(0, len(states), step)
    ]
    return FleetView(
        each=step * max(each.each for each in views),
        states="".join([states[at] for at in chosen]),
        first=next((each.first for each in views if each.first is not None), None),
        ids=[ids[at] for at in chosen],
    )


# ---------------------------------------------------------------- quarantine and schedules


def merge_quarantine(request: Any, parts: Parts, now: float) -> QuarantineView:
    found: dict[str, dict[str, QuarantineGroupView]] = {}
    for broker, part in parts.items():
        for view in part.groups:
            found.setdefault(view.group, {})[broker] = view
    groups = [_merged_group(views) for views in found.values()]
    groups.sort(key=lambda view: view.last.timestamp() if view.last is not None else 0.0, reverse=True)
    return QuarantineView(groups=groups, more=sum(each.more for each in parts.values()))


def _merged_group(parts: Mapping[str, QuarantineGroupView]) -> QuarantineGroupView:
    views = list(parts.values())
    latest = max(views, key=lambda view: view.last.timestamp() if view.last is not None else 0.0)
    return replace(
        latest,
        count=sum(each.count for each in views),
        first=earliest(each.first for each in views),
        dialects=sorted({dialect for each in views for dialect in each.dialects}),
        brokers=sorted(parts),
    )


def shared_rate(request: RetryGroupRequest, brokers: int) -> RetryGroupRequest:
    """All brokers together retry as many jobs a second as the request says."""
    return replace(request, rate=max(LEAST_RATE, request.rate / brokers))


def merge_retry_group(request: RetryGroupRequest, parts: Parts, now: float) -> RetryGroupView:
    retried, of = sum(each.retried for each in parts.values()), sum(each.of for each in parts.values())
    return RetryGroupView(group=request.group, retried=retried, of=of)


def shared_bulk_rate(request: BulkRequest, brokers: int) -> BulkRequest:
    if request.rate is None:
        return request
    return replace(request, rate=max(LEAST_RATE, request.rate / brokers))


def merge_bulk(request: Any, parts: Parts, now: float) -> BulkView:
    """One act on many jobs is an act of the same id at every broker."""
    views: list[BulkView] = list(parts.values())
    for broker, part in parts.items():
        for job in part.jobs:
            job.broker = broker
    return BulkView(
        id=views[0].id,
        act=views[0].act,
        dry_run=views[0].dry_run,
        of=sum(each.of for each in views),
        done=sum(each.done for each in views),
        left_out=sum(each.left_out for each in views),
        over=all(each.over for each in views),
        problem=next((each.problem for each in views if each.problem), ""),
        quarantined=sum(each.quarantined for each in views),
        left_out_reason=next((each.left_out_reason for each in views if each.left_out_reason), ""),
        jobs=sorted((job for each in views for job in each.jobs), key=lambda job: job.id)[:FIRST_JOBS],
    )


def merge_schedules(request: Any, parts: Parts, now: float) -> SchedulesView:
    rows = []
    for broker, part in parts.items():
        for view in part.schedules:
            view.broker = broker
            rows.append(view)
    return SchedulesView(schedules=rows)


# A merger for each operation that all brokers answer.
MERGERS: Final[dict[str, Merger]] = {
    "jobs": Merger(same, merge_jobs),
    "job counts": Merger(same, merge_job_counts),
    "services": Merger(all_services, merge_services),
    "service": Merger(same, merge_service),
    "service series": Merger(same, merge_series),
    "overview": Merger(same, merge_overview),
    "purge": Merger(same, merge_purge),
    "workers": Merger(same, merge_workers),
    "fleet": Merger(same, merge_fleet),
    "quarantine": Merger(same, merge_quarantine),
    "retry group": Merger(shared_rate, merge_retry_group),
    "schedules": Merger(same, merge_schedules),
    "retry jobs": Merger(shared_bulk_rate, merge_bulk),
    "cancel jobs": Merger(shared_bulk_rate, merge_bulk),
    "delete jobs": Merger(shared_bulk_rate, merge_bulk),
    "bulk act": Merger(same, merge_bulk),
    "stop bulk act": Merger(same, merge_bulk),
}
