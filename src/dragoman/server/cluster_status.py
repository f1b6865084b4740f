"""The state of the cluster, as one broker knows it, for the operation `cluster`."""

from __future__ import annotations

from typing import Final

from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.capacity import count_workers
from dragoman.cluster.nats_client import NatsClient
from dragoman.cluster.peers import Peer
from dragoman.cluster.replicas import Replicas
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.shards import ShardPhase
from dragoman.cluster.store import ShardStore
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.operations.cluster_schemas import ClusterView, MemberView, ShardView, StrangerView
from dragoman.operations.handlers import ClusterNumbers

PHASES: Final = {
    ShardPhase.OWNED: "owned",
    ShardPhase.CLAIMING: "claiming",
    ShardPhase.READING: "reading",
    ShardPhase.RELEASING: "releasing",
    ShardPhase.ALARMED: "unusable",
}


def cluster_view(
    side: ClusterSide, client: NatsClient, broker: Broker, durability: str, problems: list[str], now: float
) -> ClusterView:
    """`problems`: with the layout of the cluster, and with NATS."""
    settings, info = side.settings, client.info
    access = settings.access_digest()
    counted = count_workers(broker, side)
    own = MemberView(
        name=side.name,
        incarnation=side.incarnation,
        version=settings.release,
        state="self",
        workers=counted.workers,
        idle=counted.idle,
        given=0,
        taken=0,
        same_access=True,
        clock=side.gossip.clock,
        takes_shards=side.keeper is not None and side.keeper.shards.takes_shards(now),
    )
    return ClusterView(
        name=settings.cluster,
        broker=side.name,
        connected=client.is_connected,
        server=info.server_name if info is not None else "",
        members=[own, *(_member(each, access) for each in sorted(side.peers.values(), key=lambda peer: peer.name))],
        durability=durability,
        shards=shard_views(side.keeper, broker, now) if side.keeper is not None else [],
        identity=side.membership.identity,
        strangers=[
            StrangerView(name=each.broker, incarnation=each.incarnation, identity=each.identity)
            for each in side.membership.strangers(now)
        ],
        problems=[*side.membership.problems(now), *problems],
    )


def shard_views(keeper: ShardKeeper, broker: Broker, now: float) -> list[ShardView]:
    counts: dict[int, int] = {}
    for job in broker.jobs.values():
        if job.options.durable:
            number = keeper.shard_of(job.id)
            counts[number] = counts.get(number, 0) + 1
    return [_shard(keeper, number, counts.get(number, 0), now) for number in range(len(keeper.kept))]


def _shard(keeper: ShardKeeper, number: int, jobs: int, now: float) -> ShardView:
    shard, kept = keeper.shards[number], keeper.kept[number]
    owner = keeper.shards.owner(number, now)
    writer = kept.log.writer
    unusable = keeper.shards.unusable(number)  # also while it is looked at again
    phase = ShardPhase.ALARMED if unusable else shard.phase
    view = ShardView(
        number=number,
        owner=owner,
        state=PHASES.get(phase, "elsewhere" if owner else "unowned"),  # type: ignore[arg-type]
        epoch=shard.epoch or shard.newest,
        problem=unusable,
    )
    if writer is not None and shard.epoch:
        view.jobs, view.log_bytes, view.voids = jobs, keeper.log_bytes(number), kept.log.voids
        view.commit_age = round(now - kept.last_commit, 3) if kept.last_commit > -inf else None
        view.problem = unusable or kept.log.loss or writer.problem
    return view


def _member(peer: Peer, access: str) -> MemberView:
    gossip = peer.gossip
    is_draining = gossip is not None and gossip.draining
    return MemberView(
        name=peer.name,
        incarnation=peer.incarnation,
        version=gossip.release if gossip is not None else "",
        state="silent" if peer.is_silent else "draining" if is_draining else "live",
        workers=0 if gossip is None else gossip.workers,
        idle=0 if gossip is None else gossip.idle,
        given=len(peer.attempts),
        taken=len(peer.taken),
        same_access=gossip is None or gossip.access == access,
        clock=None if gossip is None else gossip.clock,
        takes_shards=not (peer.is_silent or gossip is None or gossip.draining or gossip.resting),
    )


def taken_by_service(side: ClusterSide) -> dict[str, int]:
    """Return the number of jobs of other brokers that run here, by service."""
    background = side.taken.background
    running = list(background.values())
    for peer in side.peers.values():
        running += [each for token, each in peer.taken.items() if token not in background]
    counts: dict[str, int] = {}
    for each in running:
        counts[each.service] = counts.get(each.service, 0) + 1
    return counts


def cluster_numbers(side: ClusterSide, store: ShardStore, replicas: Replicas) -> ClusterNumbers:
    """Return the samples of the metrics of a cluster."""
    numbers: ClusterNumbers = {
        "dragoman_cluster_brokers": [({}, len(side.peers))],
        "dragoman_cluster_commits_total": [({}, store.written)],
        "dragoman_cluster_replicas_away": [({}, replicas.lost)],
        "dragoman_cluster_gives_total": [({"result": name}, count) for name, count in sorted(side.gives.items())],
        "dragoman_cluster_taken_jobs_running": [({"service": name}, n) for name, n in taken_by_service(side).items()],
        "dragoman_cluster_taken_jobs_total": [
            ({"service": name, "outcome": outcome}, count)
            for name, ended in side.taken.ended.items()
            for outcome, count in ended.items()
        ],
    }
    keeper = side.keeper
    if keeper is None:
        return numbers
    owned = keeper.owned()
    sizes = [({"shard": str(each)}, float(keeper.log_bytes(each))) for each in owned]
    return numbers | {
        "dragoman_cluster_shards_owned": [({}, len(owned))],
        "dragoman_cluster_shards_unusable": [({}, len(keeper.signs.unusables()))],
        "dragoman_cluster_claims_total": [({"result": name}, count) for name, count in keeper.claims.items()],
        "dragoman_cluster_void_commits_total": [({}, sum(shard.log.voids for shard in keeper.kept))],
        "dragoman_cluster_cleanings_total": [({}, keeper.cleanings)],
        "dragoman_cluster_log_bytes": sizes,
        "dragoman_cluster_outcomes_held": [({}, len(keeper.outcomes))],
    }
