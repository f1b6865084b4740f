"""Views of the cluster that a broker belongs to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from dragoman.operations.schemas import View


class MemberView(View):
    """One broker of the cluster, as the broker that answers knows it."""

    name: str
    incarnation: Annotated[str, Meta(description="Differs for every start of the broker.")]
    version: str
    state: Annotated[
        Literal["self", "live", "silent", "draining"],
        Meta(description="`silent`: not heard for three seconds; after ten it is removed."),
    ]
    workers: Annotated[int, Meta(description="Its own workers, counted once for each service that they offer.")]
    idle: Annotated[int, Meta(description="Their free slots, likewise; at most 256 for each service.")]
    given: Annotated[int, Meta(description="Jobs of this broker that it runs now.")]
    taken: Annotated[int, Meta(description="Its jobs that this broker runs now.")]
    same_access: Annotated[bool, Meta(description="Its access table is equal to that of this broker.")]


class ClusterView(View):
    """The cluster. `connected`: this broker has a connection to NATS; while it has none, other brokers are silent."""

    name: str
    broker: str
    connected: bool
    server: Annotated[str, Meta(description="Name of the NATS server; empty while not connected.")]
    members: list[MemberView]
