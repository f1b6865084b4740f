"""Row of the table of operations: limits of a service."""

from __future__ import annotations

from typing import Final

from dragoman.operations.limit_schemas import LimitRequest
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import ServiceView

LIMIT: Final = Operation(
    name="limit",
    request=LimitRequest,
    view=ServiceView,
    summary="Limit a service: its running jobs, those of one tenant, and the rate of their starts. A limit survives "
    "restarts of the broker and beats what workers declare. Jobs beyond it wait; running jobs continue.",
    right="administer",
    target="service",
    method="POST",
    path="/v1/services/{name}/limit",
    answered_by="shard 0",
    writes=True,
    errors=("busy",),
    subject="service",
)
