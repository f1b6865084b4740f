"""Row of the table of operations for clusters."""

from __future__ import annotations

from typing import Final

from dragoman.operations.cluster_schemas import BrokerRef, ClusterView
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
RELEASE_SHARDS: Final = Operation(
    name="release shards",
    request=BrokerRef,
    view=ClusterView,
    summary="Let a broker of the cluster give its shards to others, for example before its machine is serviced. It "
    "takes none for a minute. Running jobs continue. While no other broker takes shards, it keeps its own.",
    right="administer",
    target="broker",
    method="POST",
    path="/v1/cluster/{broker}/release",
    answered_by="this broker",
    errors=("conflict", "not found"),
    command="cluster release",
)
