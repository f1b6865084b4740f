"""Rows of the operations on ladders, for the table of operations."""

from __future__ import annotations

from typing import Final

from dragoman.operations.ladder_schemas import ConversationView, LadderRequest, WorkerLadderRequest
from dragoman.operations.operation import Operation

LADDER: Final = Operation(
    name="ladder",
    request=LadderRequest,
    view=ConversationView,
    summary="Show the messages of a job: between its callers, the broker and its workers, each in its own dialect. "
    "Payloads are not part of it. The messages of a job that has not ended are recorded from now on.",
    right="see",
    target="conversation",
    method="GET",
    path="/v1/jobs/{id}/ladder",
    answered_by="job owner",
    errors=("not found", "conflict", "loading"),
    subject="job",
)
WORKER_LADDER: Final = Operation(
    name="worker ladder",
    request=WorkerLadderRequest,
    view=ConversationView,
    summary="Show the last messages of a worker, with its heartbeats. They are recorded for 30 seconds after each "
    "request, so the first one shows none.",
    right="see",
    target="worker",
    method="GET",
    path="/v1/workers/{id}/ladder",
    answered_by="worker",
    errors=("not found", "conflict"),
    command="ladder --worker",
    subject="worker",
)
