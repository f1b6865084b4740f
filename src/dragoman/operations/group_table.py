"""Rows of the table of operations: batches and groups of jobs."""

from __future__ import annotations

from typing import Final

from dragoman.operations.group_schemas import (
    EnqueueManyRequest,
    EnqueueManyView,
    GroupRef,
    GroupResultsRequest,
    GroupResultsView,
    GroupView,
)
from dragoman.operations.operation import Operation

ENQUEUE_MANY: Final = Operation(
    name="enqueue many",
    request=EnqueueManyRequest,
    view=EnqueueManyView,
    summary="Enqueue up to 10,000 background jobs in one commit: all of them, or none. The response is sent when they "
    "are on disk. The jobs may be a group, and may come after each other.",
    right="call",
    target="none",
    method="POST",
    path="/v1/jobs/many",
    answered_by="batch owner",
    writes=True,
    takes_payload=True,
    status=202,
    errors=("key reused", "busy", "draining", "not found", "too large", "forbidden"),
    command="enqueue --lines",
    returned="jobs",
)
GROUP: Final = Operation(
    name="group",
    request=GroupRef,
    view=GroupView,
    summary="Show a group: the numbers of its jobs by outcome.",
    right="see",
    target="group",
    method="GET",
    path="/v1/groups/{id}",
    answered_by="group owner",
    errors=("not found", "loading"),
    subject="group",
)
GROUP_RESULTS: Final = Operation(
    name="group results",
    request=GroupResultsRequest,
    view=GroupResultsView,
    summary="Get the results of a group, in the order of its jobs, page by page. With `wait`, the first response is "
    "sent when the group is complete, or after this time.",
    right="call",
    target="group",
    method="GET",
    path="/v1/groups/{id}/results",
    answered_by="group owner",
    returns_payload=True,
    errors=("not found", "loading"),
    command="group --results",
    subject="group",
)
CANCEL_GROUP: Final = Operation(
    name="cancel group",
    request=GroupRef,
    view=GroupView,
    summary="Cancel all jobs of a group that have not ended.",
    right="call",
    target="group",
    method="DELETE",
    path="/v1/groups/{id}",
    answered_by="group owner",
    writes=True,
    errors=("not found",),
    subject="group",
)
