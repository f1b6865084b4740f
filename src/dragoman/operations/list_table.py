"""Rows of the table of operations: lists of jobs, services and workers; listeners and the broker."""

from __future__ import annotations

from typing import Final

from dragoman.operations.cluster_schemas import NamedBroker
from dragoman.operations.list_schemas import (
    BrokerView,
    FindJobRequest,
    FleetView,
    JobCountsRequest,
    JobCountsView,
    JobsView,
    ListenersView,
    ListJobsRequest,
    ListServicesRequest,
    ListWorkersRequest,
    ServicesView,
    WorkersView,
)
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import EmptyRequest, JobView

JOBS: Final = Operation(
    name="jobs",
    request=ListJobsRequest,
    view=JobsView,
    summary="List jobs, newest first. With another filter than `service`, `state`, `outcome` and `quarantined`, at "
    "most 20,000 jobs are looked at: `searched` is their number, and `complete` is false if there are older ones.",
    right="see",
    target="list",
    method="GET",
    path="/v1/jobs",
    answered_by="all",
    pages=True,
    errors=("not found", "loading"),
    returned="jobs",
)
JOB_COUNTS: Final = Operation(
    name="job counts",
    request=JobCountsRequest,
    view=JobCountsView,
    summary="Count jobs by state, exactly. `done`, `undone` and `quarantined` count the ended jobs whose outcome is "
    "kept. Without a service, `see` over all services is needed.",
    right="see",
    target="service",
    method="GET",
    path="/v1/jobs/counts",
    answered_by="all",
    errors=("loading",),
    command="jobs --counts",
)
FIND_JOB: Final = Operation(
    name="find job",
    request=FindJobRequest,
    view=JobView,
    summary="Find a job by its idempotency key. Of several jobs with the key, it is the one that was submitted last. "
    "The view is that of `job`.",
    right="see",
    target="none",
    method="GET",
    path="/v1/jobs/find",
    answered_by="key owner",
    errors=("not found", "loading"),
    command="job --key",
)
SERVICES: Final = Operation(
    name="services",
    request=ListServicesRequest,
    view=ServicesView,
    summary="List services with their queues and workers.",
    right="see",
    target="list",
    method="GET",
    path="/v1/services",
    answered_by="all",
    pages=True,
    errors=("not found", "loading"),
    returned="services",
)
WORKERS: Final = Operation(
    name="workers",
    request=ListWorkersRequest,
    view=WorkersView,
    summary="List workers of every dialect with their jobs. `counts` has the numbers of all workers by state and "
    "dialect, for a client with `see` over all services.",
    right="see",
    target="list",
    method="GET",
    path="/v1/workers",
    answered_by="all",
    pages=True,
    errors=("not found",),
    returned="workers",
)
FLEET: Final = Operation(
    name="fleet",
    request=EmptyRequest,
    view=FleetView,
    summary="Show the state of every worker as one letter. i is idle, b busy, s stuck, d detached, r draining, t "
    "starting, o backing off. With more than 2,000 workers, a letter stands for `each` workers and is the state that "
    "needs attention most.",
    right="see",
    target="list",
    method="GET",
    path="/v1/workers/fleet",
    answered_by="all",
    command="workers --fleet",
)
LISTENERS: Final = Operation(
    name="listeners",
    request=NamedBroker,
    view=ListenersView,
    summary="List the listeners with their connections, traffic and bad messages.",
    right="see",
    target="broker",
    method="GET",
    path="/v1/listeners",
    answered_by="named broker",
    errors=("conflict", "not found"),
    returned="listeners",
)
BROKER: Final = Operation(
    name="broker",
    request=NamedBroker,
    view=BrokerView,
    summary="Show the broker itself. The view has its version, the limits and how much of each is used, the settings "
    "that are not default, and the size of its store.",
    right="see",
    target="broker",
    method="GET",
    path="/v1/broker",
    answered_by="named broker",
    errors=("conflict", "not found"),
)
