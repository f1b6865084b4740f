"""The state of the cluster, as one broker knows it, for the operation `cluster`."""

from __future__ import annotations

from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.capacity import capacity_of
from dragoman.cluster.nats_client import NatsClient
from dragoman.cluster.peers import Peer
from dragoman.cluster.records import ServiceGossip
from dragoman.core.broker import Broker
from dragoman.operations.cluster_schemas import ClusterView, MemberView


def cluster_view(side: ClusterSide, client: NatsClient, broker: Broker) -> ClusterView:
    settings, info = side.settings, client.info
    access = settings.access_digest()
    own = MemberView(
        name=side.name,
        incarnation=side.incarnation,
        version=settings.release,
        state="self",
        given=0,
        taken=0,
        same_access=True,
        **_counts(capacity_of(broker, side)),
    )
    return ClusterView(
        name=settings.cluster,
        broker=side.name,
        connected=client.is_connected,
        server=info.server_name if info is not None else "",
        members=[own, *(_member(each, access) for each in sorted(side.peers.values(), key=lambda peer: peer.name))],
    )


def _member(peer: Peer, access: str) -> MemberView:
    gossip = peer.gossip
    is_draining = gossip is not None and gossip.draining
    return MemberView(
        name=peer.name,
        incarnation=peer.incarnation,
        version=gossip.release if gossip is not None else "",
        state="silent" if peer.is_silent else "draining" if is_draining else "live",
        given=len(peer.attempts),
        taken=len(peer.taken),
        same_access=gossip is None or gossip.access == access,
        **_counts(gossip.services if gossip is not None else {}),
    )


def _counts(services: dict[str, ServiceGossip]) -> dict[str, int]:
    return {
        "workers": sum(each.workers for each in services.values()),
        "idle": sum(each.idle for each in services.values()),
    }
