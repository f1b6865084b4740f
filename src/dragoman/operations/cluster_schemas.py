"""Views of the cluster that a broker belongs to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from dragoman.operations.schemas import OperationRequest, View


class MemberView(View):
    """One broker of the cluster, as the broker that answers knows it."""

    name: str
    incarnation: Annotated[str, Meta(description="Differs for every start of the broker.")]
    version: str
    state: Annotated[
        Literal["self", "live", "silent", "draining"],
        Meta(description="`silent`: not heard for three seconds; after ten it is removed."),
    ]
    workers: Annotated[int, Meta(description="Its own workers.")]
    idle: Annotated[int, Meta(description="Their free slots; those of other brokers may be a second old.")]
    given: Annotated[int, Meta(description="Jobs of this broker that it runs now.")]
    taken: Annotated[int, Meta(description="Its jobs that this broker runs now.")]
    same_access: Annotated[bool, Meta(description="Its access table is equal to that of this broker.")]
    clock: Annotated[
        float | None, Meta(description="Seconds by which its clock is ahead of that of NATS; null: not known yet.")
    ] = None
    takes_shards: Annotated[
        bool, Meta(description="Not if it is silent, stops, or has given its shards up less than a minute ago.")
    ] = False


BrokerName = Annotated[str, Meta(min_length=1, max_length=32)]


class BrokerRef(OperationRequest):
    """A broker of the cluster."""

    broker: Annotated[str, Meta(min_length=1, max_length=32, description="Name of the broker.")]


class NamedBroker(OperationRequest):
    broker: Annotated[
        BrokerName | None, Meta(description="Broker of the cluster; the default is the one that is asked.")
    ] = None


class ShardView(View):
    """One shard of the background jobs, as the broker that answers knows it. Numbers of its log are known at its owner
    only."""

    number: int
    owner: Annotated[str, Meta(description="The broker that has it; empty: none that is known.")]
    state: Annotated[
        Literal["owned", "claiming", "reading", "releasing", "elsewhere", "unowned", "unusable"],
        Meta(description="`unusable`: its log cannot be trusted; `problem` says why."),
    ]
    epoch: Annotated[int, Meta(description="Place of the owner's claim in the log; 0: none is known.")]
    jobs: Annotated[int | None, Meta(description="Its jobs, with those whose outcome is kept.")] = None
    log_bytes: Annotated[
        int | None, Meta(description="Size of the log, looked at every ten seconds, and what was written since.")
    ] = None
    commit_age: Annotated[float | None, Meta(description="Seconds since the last commit.")] = None
    voids: Annotated[int | None, Meta(description="Messages of other brokers that did not count.")] = None
    problem: str = ""


class StrangerView(View):
    """A broker that has the name of this cluster, and logs with another identity. It is ignored."""

    name: str
    incarnation: str
    identity: Annotated[str, Meta(description="Identity of its logs.")]


class ClusterView(View):
    """The cluster. `connected`: this broker has a connection to NATS; while it has none, other brokers are silent."""

    name: str
    broker: str
    connected: bool
    server: Annotated[str, Meta(description="Name of the NATS server; empty while not connected.")]
    members: list[MemberView]
    durability: Annotated[
        str, Meta(description="What an acknowledged background job survives; empty: not known yet.")
    ] = ""
    shards: list[ShardView] = field(default_factory=list)
    identity: Annotated[
        str, Meta(description="Identity of the logs, which `dragoman cluster init` has made; empty: not known yet.")
    ] = ""
    strangers: Annotated[
        list[StrangerView], Meta(description="Brokers with the name of this cluster and other logs: they are ignored.")
    ] = field(default_factory=list)
    problems: Annotated[
        list[str],
        Meta(description="Sentences: brokers that are ignored, the reason why this one stays out, or has no logs."),
    ] = field(default_factory=list)
