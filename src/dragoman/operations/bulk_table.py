"""Rows of the table of operations: acts on many jobs."""

from __future__ import annotations

from typing import Final

from dragoman.operations.bulk_schemas import BulkRef, BulkView, CancelJobsRequest, DeleteJobsRequest, RetryJobsRequest
from dragoman.operations.operation import Operation

MANY: Final = (
    " Jobs that the principal may not act on are left out. The response is sent when the first jobs are done; `bulk "
    "act` returns the progress. A restart of the broker ends it: what is done stays done, and the request can be "
    "repeated."
)

RETRY_JOBS: Final = Operation(
    name="retry jobs",
    request=RetryJobsRequest,
    view=BulkView,
    summary="Retry all jobs in quarantine that match a filter, oldest first." + MANY,
    right="call",
    target="list",
    method="POST",
    path="/v1/jobs/retry",
    answered_by="all",
    writes=True,
    status=202,
    errors=("draining", "busy"),
    command="retry --all",
)
CANCEL_JOBS: Final = Operation(
    name="cancel jobs",
    request=CancelJobsRequest,
    view=BulkView,
    summary="Cancel all jobs that match a filter and have not ended, oldest first." + MANY,
    right="call",
    target="list",
    method="POST",
    path="/v1/jobs/cancel",
    answered_by="all",
    writes=True,
    status=202,
    errors=("busy",),
    command="cancel --all",
)
DELETE_JOBS: Final = Operation(
    name="delete jobs",
    request=DeleteJobsRequest,
    view=BulkView,
    summary="Delete all ended jobs that match a filter, with their outcomes, oldest first." + MANY,
    right="call",
    target="list",
    method="POST",
    path="/v1/jobs/delete",
    answered_by="all",
    writes=True,
    status=202,
    errors=("busy",),
    command="delete --all",
)
BULK_ACT: Final = Operation(
    name="bulk act",
    request=BulkRef,
    view=BulkView,
    summary="Show the progress of an act on many jobs. It is known for ten minutes after its end, to the principal "
    "that has requested it.",
    right="see",
    target="none",
    method="GET",
    path="/v1/bulk/{id}",
    answered_by="all",
    errors=("not found",),
)
STOP_BULK_ACT: Final = Operation(
    name="stop bulk act",
    request=BulkRef,
    view=BulkView,
    summary="Stop an act on many jobs. What is done stays done; the other jobs are unchanged.",
    right="call",
    target="none",
    method="DELETE",
    path="/v1/bulk/{id}",
    answered_by="all",
    writes=True,
    errors=("not found",),
)
