"""The table of operations: each operation on jobs, services, workers and schedules is declared once, here.

Dispatch, HTTP routes, the OpenAPI document, the methods of clients, commands and `docs/operations.md` come from these
rows. A new operation is one row, one method (`handlers.py`) and one test. Fields, limits and defaults of an operation
are those of its request type (`schemas.py`).
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.operations.bulk_table import BULK_ACT as BULK_ACT
from dragoman.operations.bulk_table import CANCEL_JOBS as CANCEL_JOBS
from dragoman.operations.bulk_table import DELETE_JOBS as DELETE_JOBS
from dragoman.operations.bulk_table import RETRY_JOBS as RETRY_JOBS
from dragoman.operations.bulk_table import STOP_BULK_ACT as STOP_BULK_ACT
from dragoman.operations.cluster_table import CLUSTER as CLUSTER
from dragoman.operations.cluster_table import RELEASE_SHARDS as RELEASE_SHARDS
from dragoman.operations.dashboard_table import OVERVIEW as OVERVIEW
from dragoman.operations.dashboard_table import SERVICE_SERIES as SERVICE_SERIES
from dragoman.operations.group_table import CANCEL_GROUP as CANCEL_GROUP
from dragoman.operations.group_table import ENQUEUE_MANY as ENQUEUE_MANY
from dragoman.operations.group_table import GROUP as GROUP
from dragoman.operations.group_table import GROUP_RESULTS as GROUP_RESULTS
from dragoman.operations.ladder_table import LADDER as LADDER
from dragoman.operations.ladder_table import WORKER_LADDER as WORKER_LADDER
from dragoman.operations.limit_table import LIMIT as LIMIT
from dragoman.operations.list_schemas import WhyView
from dragoman.operations.list_table import BROKER as BROKER
from dragoman.operations.list_table import FIND_JOB as FIND_JOB
from dragoman.operations.list_table import FLEET as FLEET
from dragoman.operations.list_table import JOB_COUNTS as JOB_COUNTS
from dragoman.operations.list_table import JOBS as JOBS
from dragoman.operations.list_table import LISTENERS as LISTENERS
from dragoman.operations.list_table import SERVICES as SERVICES
from dragoman.operations.list_table import WORKERS as WORKERS
from dragoman.operations.operation import JOB_LOCATION, Operation
from dragoman.operations.quarantine_table import QUARANTINE as QUARANTINE
from dragoman.operations.quarantine_table import RETRY_GROUP as RETRY_GROUP
from dragoman.operations.schedule_table import DELETE_SCHEDULE as DELETE_SCHEDULE
from dragoman.operations.schedule_table import PAUSE_SCHEDULE as PAUSE_SCHEDULE
from dragoman.operations.schedule_table import RESUME_SCHEDULE as RESUME_SCHEDULE
from dragoman.operations.schedule_table import RUN_SCHEDULE as RUN_SCHEDULE
from dragoman.operations.schedule_table import SCHEDULE as SCHEDULE
from dragoman.operations.schedule_table import SCHEDULES as SCHEDULES
from dragoman.operations.schedule_table import SET_SCHEDULE as SET_SCHEDULE
from dragoman.operations.schemas import (
    AccessView,
    DrainRequest,
    EmptyRequest,
    EnqueueRequest,
    HealthView,
    JobAct,
    JobRef,
    JobView,
    PauseRequest,
    PurgeRequest,
    PurgeView,
    ResultRequest,
    ServiceRef,
    ServiceView,
    WorkerRef,
    WorkerView,
)

# ---------------------------------------------------------------- jobs

ENQUEUE: Final = Operation(
    name="enqueue",
    request=EnqueueRequest,
    view=JobView,
    summary="Enqueue a background job. The response is sent when the job is on disk.",
    right="call",
    target="service",
    method="POST",
    path="/v1/jobs",
    answered_by="key owner",
    writes=True,
    takes_payload=True,
    status=202,
    location=JOB_LOCATION,
    errors=("key reused", "busy", "draining", "not found"),
    returned="id",
)
JOB: Final = Operation(
    name="job",
    request=JobRef,
    view=JobView,
    summary="Show one job. The view has its times and attempts, the first bytes of its payload while that is kept, its "
    "last progress report and, once it has ended, its result or its error.",
    right="see",
    target="job",
    method="GET",
    path="/v1/jobs/{id}",
    answered_by="job owner",
    errors=("not found", "loading"),
)
PAYLOAD: Final = Operation(
    name="payload",
    request=JobRef,
    view=JobView,
    summary="Get the payload of a job as it was submitted. It is kept until the job ends, and in quarantine.",
    right="call",
    target="job",
    method="GET",
    path="/v1/jobs/{id}/payload",
    answered_by="job owner",
    returns_payload=True,
    errors=("not found", "loading", "conflict"),
    command="job --payload",
)
CANCEL: Final = Operation(
    name="cancel",
    request=JobRef,
    view=JobView,
    summary="Cancel a job that has not ended.",
    right="call",
    target="job",
    method="DELETE",
    path="/v1/jobs/{id}",
    answered_by="job owner",
    writes=True,
    errors=("not found", "conflict"),
)
RESULT: Final = Operation(
    name="result",
    request=ResultRequest,
    view=JobView,
    summary="Get the result of a job.",
    right="call",
    target="job",
    method="GET",
    path="/v1/jobs/{id}/result",
    answered_by="job owner",
    returns_payload=True,
    errors=("not found", "loading"),
    subject="job",
)
RETRY: Final = Operation(
    name="retry",
    request=JobAct,
    view=JobView,
    summary="Retry a job in quarantine: a new job is created with its payload, and the old one leaves the quarantine. "
    "`retry_of` of the new job and `retried_as` of the old one link the two.",
    right="call",
    target="job",
    method="POST",
    path="/v1/jobs/{id}/retry",
    answered_by="job owner",
    writes=True,
    status=202,
    location=JOB_LOCATION,
    errors=("not found", "conflict", "busy"),
    returned="id",
)
DELETE: Final = Operation(
    name="delete",
    request=JobAct,
    view=JobView,
    summary="Delete an ended job with its outcome, in quarantine or not. Its key is free then.",
    right="call",
    target="job",
    method="DELETE",
    path="/v1/jobs/{id}/outcome",
    answered_by="job owner",
    writes=True,
    errors=("not found", "conflict"),
    returned="id",
)
WHY: Final = Operation(
    name="why",
    request=JobRef,
    view=WhyView,
    summary="Explain in one sentence why a job is not running, or how it ended. `kind` is the reason for programs, "
    "`ahead` the number of jobs that start first, `turn_in` the seconds until its turn at the present rate.",
    right="see",
    target="job",
    method="GET",
    path="/v1/jobs/{id}/why",
    answered_by="job owner",
    errors=("not found", "loading"),
    returned="why",
)

# ---------------------------------------------------------------- services

SERVICE: Final = Operation(
    name="service",
    request=ServiceRef,
    view=ServiceView,
    summary="Show one service.",
    right="see",
    target="service",
    method="GET",
    path="/v1/services/{name}",
    answered_by="all",
    errors=("not found",),
    for_any_right=True,
    command="show-service",
    subject="service",
)
PAUSE: Final = Operation(
    name="pause",
    request=PauseRequest,
    view=ServiceView,
    summary="Pause a service: none of its jobs is dispatched until the service is resumed. New jobs are accepted, and "
    "running jobs continue.",
    right="administer",
    target="service",
    method="POST",
    path="/v1/services/{name}/pause",
    answered_by="shard 0",
    writes=True,
    errors=("busy",),
    subject="service",
)
RESUME: Final = Operation(
    name="resume",
    request=ServiceRef,
    view=ServiceView,
    summary="Resume a paused service.",
    right="administer",
    target="service",
    method="POST",
    path="/v1/services/{name}/resume",
    answered_by="shard 0",
    writes=True,
    errors=("not found",),
    subject="service",
)
PURGE: Final = Operation(
    name="purge",
    request=PurgeRequest,
    view=PurgeView,
    summary="Cancel the waiting, delayed and dependent jobs of a service. With the state `ended`, delete the outcomes "
    "of its ended jobs, except those that other jobs wait for. Running jobs continue.",
    right="administer",
    target="service",
    method="POST",
    path="/v1/services/{name}/purge",
    answered_by="all",
    writes=True,
    errors=("not found", "conflict"),
    subject="service",
    returned="purged",
)

# ---------------------------------------------------------------- workers

WORKER: Final = Operation(
    name="worker",
    request=WorkerRef,
    view=WorkerView,
    summary="Show one worker.",
    right="see",
    target="worker",
    method="GET",
    path="/v1/workers/{id}",
    answered_by="worker",
    errors=("not found",),
    command="show-worker",
    subject="worker",
)
DRAIN: Final = Operation(
    name="drain",
    request=DrainRequest,
    view=WorkerView,
    summary="Drain a worker: it gets no more jobs and finishes those it has, then it is told to exit. A worker whose "
    "`comes_back` is true would join again, so it stays connected without jobs. With `now`, its jobs are "
    "taken from it and it is removed at once.",
    right="administer",
    target="worker",
    method="POST",
    path="/v1/workers/{id}/drain",
    answered_by="worker",
    writes=True,
    errors=("not found",),
    subject="worker",
)

# ---------------------------------------------------------------- the broker

RELOAD_ACCESS: Final = Operation(
    name="reload access",
    request=EmptyRequest,
    view=AccessView,
    summary="Read the access folder again. If a file is invalid, nothing changes. The answer names the principals that "
    "were added, removed and changed; connections of principals that lost their access are closed.",
    right="administer",
    target="broker",
    method="POST",
    path="/v1/access/reload",
    answered_by="this broker",
    errors=("conflict", "invalid"),
    command="access reload",
)
HEALTH: Final = Operation(
    name="health",
    request=EmptyRequest,
    view=HealthView,
    summary="Show whether the broker accepts new jobs, the reasons if not, and the numbers of jobs and workers. "
    "`peers` is the number of connections. Without `see` over all services, reasons and numbers are left out.",
    right="see",
    target="none",
    method="GET",
    path="/v1/health",
    answered_by="this broker",
)

OPERATIONS: Final[dict[str, Operation[Any, Any]]] = {
    each.name: each
    for each in (
        ENQUEUE,
        ENQUEUE_MANY,
        JOBS,
        JOB_COUNTS,
        FIND_JOB,
        JOB,
        PAYLOAD,
        CANCEL,
        RESULT,
        RETRY,
        DELETE,
        WHY,
        GROUP,
        GROUP_RESULTS,
        CANCEL_GROUP,
        RETRY_JOBS,
        CANCEL_JOBS,
        DELETE_JOBS,
        BULK_ACT,
        STOP_BULK_ACT,
        QUARANTINE,
        RETRY_GROUP,
        LADDER,
        SERVICES,
        SERVICE,
        PAUSE,
        RESUME,
        LIMIT,
        PURGE,
        WORKERS,
        FLEET,
        WORKER,
        DRAIN,
        WORKER_LADDER,
        SCHEDULES,
        SCHEDULE,
        SET_SCHEDULE,
        DELETE_SCHEDULE,
        PAUSE_SCHEDULE,
        RESUME_SCHEDULE,
        RUN_SCHEDULE,
        RELOAD_ACCESS,
        LISTENERS,
        BROKER,
        CLUSTER,
        RELEASE_SHARDS,
        HEALTH,
        OVERVIEW,
        SERVICE_SERIES,
    )
}
