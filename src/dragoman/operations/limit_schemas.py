"""Request of the operation that limits a service."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dragoman.core.limit_values import MOST_RUNNING
from dragoman.operations.schemas import OperationRequest, ServiceName

MaxRunning = Annotated[
    int,
    Meta(
        ge=0,
        le=MOST_RUNNING,
        description="Most jobs that run at once; 0: no limit, whatever its workers declare. Without it, unchanged.",
    ),
]
MaxRunningPerTenant = Annotated[
    int,
    Meta(
        ge=0,
        le=MOST_RUNNING,
        description="Most jobs of one tenant that run at once; 0: no limit, whatever its workers declare. Without it, "
        "unchanged.",
    ),
]
RateText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=16,
        description="Rate of starts: a number and a unit, `s`, `min` or `h`, such as `100/min`. Starts are spread "
        "evenly. `none`: no limit, whatever its workers declare. Without it, unchanged.",
        examples=["100/min"],
        # For documents only: `read_rate` has the better error.
        extra_json_schema={"pattern": "^(none|(1000000|[1-9][0-9]{0,5})/(s|min|h))$"},
    ),
]


class LimitRequest(OperationRequest):
    """Limits of a service, set by an operator."""

    name: ServiceName
    max_running: MaxRunning | None = None
    max_running_per_tenant: MaxRunningPerTenant | None = None
    rate: RateText | None = None
    reset: Annotated[
        bool,
        Meta(
            description="Remove the limits that an operator has set before, then set the given ones. Limits that its "
            "workers declare hold again."
        ),
    ] = False
