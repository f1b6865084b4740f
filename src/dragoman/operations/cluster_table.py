"""Row of the table of operations for clusters."""

from __future__ import annotations

from typing import Final

from dragoman.operations.cluster_schemas import ClusterView
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import EmptyRequest

CLUSTER: Final = Operation(
    name="cluster",
    request=EmptyRequest,
    view=ClusterView,
    summary="Show the brokers of the cluster, as this broker knows them.",
    right="see",
    target="broker",
    method="GET",
    path="/v1/cluster",
    answered_by="this broker",
    errors=("conflict",),
    command="cluster status",
)
