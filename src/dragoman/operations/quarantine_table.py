"""Rows of the table of operations: the quarantine."""

from __future__ import annotations

from typing import Final

from dragoman.operations.operation import Operation
from dragoman.operations.quarantine_schemas import QuarantineView, RetryGroupRequest, RetryGroupView
from dragoman.operations.schemas import EmptyRequest

QUARANTINE: Final = Operation(
    name="quarantine",
    request=EmptyRequest,
    view=QuarantineView,
    summary="List the jobs in quarantine by cause. A group has one service, outcome and reason, apart from numbers and "
    "quoted texts in the reason.",
    right="see",
    target="list",
    method="GET",
    path="/v1/quarantine",
    answered_by="all",
    errors=("loading",),
    returned="groups",
)
RETRY_GROUP: Final = Operation(
    name="retry group",
    request=RetryGroupRequest,
    view=RetryGroupView,
    summary="Retry the jobs of a group in quarantine. Each becomes a new job, one after the other; jobs that have left "
    "the quarantine meanwhile are left out. The response is sent at the start; a second request returns the progress. "
    "A restart of the broker ends the retry, and the rest stays in quarantine.",
    right="call",
    target="quarantine group",
    method="POST",
    path="/v1/quarantine/retry",
    answered_by="all",
    writes=True,
    status=202,
    errors=("not found", "draining"),
    command="quarantine retry",
)
