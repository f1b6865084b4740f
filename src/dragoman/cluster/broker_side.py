"""The cluster's side of a broker: gossip with the other brokers, and links to them.

For the core, another broker is a worker for each of its services (`remote_workers.py`), and the caller of each job that
it sends here (`taken_jobs.py`). While NATS is away, everything local goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.nats_info import ServerInfo
from dragoman.cluster.access_tables import AccessTables
from dragoman.cluster.capacity import Capacity
from dragoman.cluster.departure import Departure
from dragoman.cluster.gossip import Gossip, read_gossip, read_settings
from dragoman.cluster.gossip_sender import GossipSender
from dragoman.cluster.gossiped_settings import GossipedSettings
from dragoman.cluster.hearing import DEAF_AFTER, Hearing
from dragoman.cluster.limit_shares import LimitShares
from dragoman.cluster.link import Link
from dragoman.cluster.membership import LISTEN_FIRST, NAMESAKE_FOR, Membership
from dragoman.cluster.names import Subjects
from dragoman.cluster.nats_client import NatsClient, NatsWatcher
from dragoman.cluster.peers import Peer, RemoteService
from dragoman.cluster.questions import Questions
from dragoman.cluster.records import (
    Ack,
    Answer,
    AnyRecord,
    Ask,
    Busy,
    Failed,
    Free,
    Give,
    Grants,
    Held,
    Leave,
    Left,
    LetGo,
    Packet,
    Progress,
    Recall,
    Record,
    Report,
    Result,
    Returned,
    Seek,
    TableLimits,
    Watch,
    Watched,
    read_packet,
)
from dragoman.cluster.remote_workers import RemoteWorkers
from dragoman.cluster.service_settings import apply_settings, declared_by
from dragoman.cluster.settings import ClusterSettings
from dragoman.cluster.shard_bytes import CALL, shard_of
from dragoman.cluster.shard_hub import ShardHub
from dragoman.cluster.shard_keeper import ShardKeeper
from dragoman.cluster.taken_jobs import TakenJobs
from dragoman.core.broker import Broker
from dragoman.core.effects import CancelAttempt, DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.infinity import inf
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.owners import Owner
from dragoman.core.recipients import RemoteWorker, TimedRecipient
from dragoman.dialects.interface import BrokerIO

MAX_PEERS: Final = 64
NOT_REACHED: Final = "NATS is not reached"
ECHO_WITHIN: Final = 3.5  # seconds in which the gossip of this broker comes back to it, unless NATS is cut off
CUT_OFF: Final = "nothing comes back from NATS"
LISTENING: Final = "this broker has just reached NATS, and still listens for the others"
NO_LAYOUT: Final = "the layout of the cluster is not known yet"

Receiver = Callable[[Peer, Any, float], None]  # of one kind of record


class ClusterSide(TimedRecipient):
    """One broker in its cluster. `watcher` must be that of the NATS client which `start` receives."""

    dialect = "cluster"

    def __init__(self, broker: Broker, io: BrokerIO, settings: ClusterSettings, owner: Owner, now: float) -> None:
        self._broker = broker
        self._io = io
        self.settings = settings
        self._subjects = Subjects(settings.cluster)
        self.name = settings.broker
        self.incarnation = broker.entropy.token().hex()[:16]
        self.membership = Membership(io, settings.cluster, self.name, self.incarnation, now)
        self.watcher = ConnectionWatcher(self)
        self.peers: dict[str, Peer] = {}
        self._workers = RemoteWorkers(broker, self, owner, settings.max_payload)
        self.gives = self._workers.gives
        self.questions = Questions(self._request_flush)
        self._links = 0  # made so far
        myself = Peer(self.name, self.incarnation, Link(self.name, self.incarnation, 1 << 20), now)
        self.taken = broker.handover.arrivals = TakenJobs(broker, self, myself)
        self.hearing = Hearing(now, min(DEAF_AFTER, 0.5 * settings.adopt_after))
        own = (self._workers, self.taken, self._request_flush, self.hearing)
        self.hub = ShardHub(broker, io, myself, self.peers, *own)
        self.notes = GossipedSettings(broker, self.name, self.peers, self.hub)
        self.gossip = GossipSender(
            broker,
            settings,
            self.membership,
            Capacity(broker, self),
            self.peers,
            self.hub,
            self.notes,
            lambda gossip: self._publish(self._subjects.gossip, gossip),
        )
        of_others = (self.notes.granter, self.hub.counting_owner, self._request_flush)
        self.shares = LimitShares(broker, self.hub.run, self.peers, settings.adopt_after, *of_others)
        self.hub.when_moved = self.shares.moved.add
        self._tables = AccessTables(broker, settings.access_digest, self._request_flush)
        self._client: NatsClient | None = None
        self._max_message = 1 << 20  # bytes that the NATS server accepts
        self._has_begun = True  # to look for shards
        self._keeps_from = inf  # time at which the layout was known
        self._hears_all_from = inf  # time from which every other broker has been heard since NATS was reached
        self._is_flush_requested = False
        self.departure = Departure(self.peers, self.taken, self._request_flush)
        self.receivers: dict[type[Record], Receiver] = {  # of records that do not come with every job
            Seek: self.hub.take_seek,
            LetGo: lambda peer, record, now: self.hub.rest(now),
            Recall: self.taken.recall,
            Ask: self.questions.asked,
            Answer: self.questions.answered,
            Leave: self.questions.left,
            Report: self.shares.reported,
            Grants: self.shares.granted_by,
            TableLimits: self._tables.received,
            Held: self.hub.take,
            Left: self.hub.take,
            Returned: self.hub.take,
            Watch: self.hub.take_watch,
            Watched: self.hub.take_watch,
        }

    def start(self, client: NatsClient) -> None:
        """Use this client from now on."""
        self._client = client
        client.subscribe(self._subjects.gossip, self._receive_gossip)
        client.subscribe(self._subjects.broker(self.name, self.incarnation), self._receive_packet)

    # ---------------------------------------------------------------- the connection to NATS

    @property
    def is_connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    def connected(self, info: ServerInfo, now: float) -> None:
        """Continue the links, and send gossip, on a new connection."""
        self._max_message = info.max_payload
        for each in self.peers.values():
            each.link.max_message = info.max_payload
            each.link.reconnected(now)
        self.membership.connected(now)
        self._hears_all_from = max(now, self.membership.takes_part_at) + LISTEN_FIRST
        if self.membership.takes_part_at > now:
            self.shares.granter.listens_from = self.membership.takes_part_at
        self.shares.granter.connected_at = now + LISTEN_FIRST
        if self.keeper is not None:
            self.keeper.verify(now)
        self.gossip.send_soon()

    def away(self, now: float) -> None:
        """Send no jobs to other brokers: the connection has ended."""
        for each in self.peers.values():
            self._silence(each, now)
        self.hearing.away()

    @property
    def keeper(self) -> ShardKeeper | None:
        """The keeper of shards; None until the layout of the cluster is known."""
        return self.hub.keeper

    def keep_shards(self, keeper: ShardKeeper, now: float) -> None:
        """Own shards from now on, when the others have been heard."""
        self.hub.keeper = keeper
        self.membership.layout_known(keeper.identity, now)
        for peer in list(self.peers.values()):
            peer.link.identity = keeper.identity
            if peer.gossip is not None:
                self._ignores(peer.name, peer.incarnation, peer.gossip.identity, now)
        self.taken.outcomes = keeper.outcomes
        self._keeps_from = now
        self._has_begun = False

    def silence(self, now: float) -> str:
        """Return a sentence if the gossip of this broker does not come back to it: NATS is frozen, or cut off."""
        heard_until = max(self._hears_all_from, self.shares.granter.echoed_at + ECHO_WITHIN)
        return CUT_OFF if self.is_connected and now > heard_until else ""

    def doubt(self, now: float) -> str:
        """Return the reason why this broker may not know the others, or their shards; empty: it knows them."""
        if not self.is_connected:
            return NOT_REACHED
        refusal = self.membership.refusal()
        if refusal or now < self._hears_all_from:
            return refusal or LISTENING
        if silence := self.silence(now):
            return silence
        return "" if self.keeper is not None else NO_LAYOUT

    def _publish(self, subject: bytes, payload: bytes) -> None:
        if self._client is not None:
            self._client.publish(subject, payload)

    # ---------------------------------------------------------------- calls from the runner

    def unsent(self, remote: RemoteWorker) -> int:
        assert type(remote) is RemoteService
        return remote.peer.link.unacknowledged

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._workers.send_job(effect, now)
        elif type(effect) is DeliverOutcome:
            self.taken.outcome(effect, now)
        elif type(effect) is DeliverProgress:
            self.taken.progress(effect, now)
        elif type(effect) is CancelAttempt:
            self._workers.cancel(effect)
        elif type(effect) is RemoveWorker:
            self._workers.removed(effect)
        self._request_flush()

    def tick(self, now: float) -> float:
        due = self.questions.tick(now)
        for peer in list(self.peers.values()):
            if peer.due() <= now and not peer.is_silent:
                self._silence(peer, now)
            if peer.due() <= now and not self.hearing.is_deaf(now):
                self._drop(peer, f"broker {peer.name} is gone", now)
                continue
            if self.is_connected and peer.link.next_tick() <= now:
                self._send(peer, peer.link.tick(now))
            is_due = peer.due() > now  # else this broker is deaf, and waits for its own gossip
            due = min(due, peer.due() if is_due else inf, peer.link.next_tick() if self.is_connected else inf)
        if self.is_connected:
            self.membership.tick(now)
            from_then = self.membership.takes_part_at
            due = min(due, self.gossip.tick(now) if now >= from_then else from_then)
            due = min(due, self.shares.tick(now))
        if self.keeper is not None:
            due = min(due, self._tick_keeper(self.keeper, now))
        if self._broker.dispatch.is_draining:
            is_free = self.is_connected and self.keeper is not None and self.keeper.shards.is_drained
            due = min(due, self.departure.tick(self.gossip.has_told_end, is_free, now))
        return due

    def _tick_keeper(self, keeper: ShardKeeper, now: float) -> float:
        from_then = max(self._keeps_from, self.membership.takes_part_at) + LISTEN_FIRST  # the others are heard first
        if now < from_then and keeper.shards.is_drained:
            return from_then
        if not self._has_begun and self.is_connected:
            self._has_begun = True
            keeper.begin(now)
        return keeper.tick(now)

    # ---------------------------------------------------------------- gossip

    def say_goodbye(self, now: float) -> None:
        """Tell the other brokers that this one has stopped: they wait for nothing of it."""
        if self.is_connected and now >= self.membership.takes_part_at:
            self.gossip.send_last(now)

    def _receive_gossip(self, subject: Frame, reply: Frame, headers: Frame, payload: Frame, now: float) -> None:
        try:
            self._hear(read_gossip(bytes(payload)), now)
        except Malformed as problem:
            self._io.log_limited("bad message", reason=problem.reason, detail=problem.detail)

    def _hear(self, gossip: Gossip, now: float) -> None:
        if self._ignores(gossip.broker, gossip.incarnation, gossip.identity, now):
            return
        if gossip.broker == self.name:
            if gossip.incarnation == self.incarnation:
                self.shares.granter.echoed_at = self.membership.sent_at(gossip)
                self._hear_itself(now)
            elif self.membership.hear_namesake(gossip, now):
                self._stay_out(now)
            return
        if now < self.membership.takes_part_at:
            return
        peer = self._peer(gossip.broker, gossip.incarnation, now)
        if peer is None:
            return
        peer.heard = now
        is_back, peer.is_silent = peer.is_silent, False
        if peer.gossip is None:
            self._io.remark("broker joined", cluster=self.settings.cluster, broker=peer.name)
        elif is_back:
            self._io.remark("broker heard again", cluster=self.settings.cluster, broker=peer.name)
        peer.gossip = gossip
        self._broker.limiter.declare_elsewhere(peer.name, declared_by(gossip), now)
        self._tables.heard(peer, gossip.access, now)
        self._workers.heard(peer, gossip, gossip.got.get(self.name, 0), now)
        self._broker.availability.heal(gossip.services)
        if self.keeper is not None:
            self.keeper.heard(gossip, now)
        if gossip.settings and self.notes.is_owner(peer.name, now):
            apply_settings(self._broker, read_settings(gossip.settings), now)
            self.hub.has_settings = True
        if gossip.stopped:
            self._silence(peer, now)
        self._request_flush()

    def _hear_itself(self, now: float) -> None:
        """The gossip of this broker has returned. After a time in which it did not, all others count as heard until
        then."""
        gap = self.hearing.echoed(now)
        if not gap:
            return
        for peer in self.peers.values():
            peer.heard = self.hearing.moved(peer.heard, gap, peer.gone_after, now)
        if self.keeper is not None:
            self.keeper.shards.heard_again(gap, now)

    def _ignores(self, broker: str, incarnation: str, identity: str, now: float) -> bool:
        """True if the sender of a message has the logs of another cluster."""
        if not self.membership.is_stranger(broker, incarnation, identity, now):
            return False
        peer = self.peers.get(broker)
        if peer is not None and peer.incarnation == incarnation:  # it was heard before the layout was known
            self._drop(peer, f"broker {broker} has the logs of another cluster", now)
        return True

    def _stay_out(self, now: float) -> None:
        """Leave the cluster while an older broker with this name is heard."""
        self.shares.granter.listens_from = self.membership.takes_part_at
        for peer in list(self.peers.values()):
            self._drop(peer, "an older broker has the same name", now)
        if self.keeper is not None:
            self.keeper.shards.stay_out(now, NAMESAKE_FOR + LISTEN_FIRST)

    def _peer(self, name: str, incarnation: str, now: float) -> Peer | None:
        """Return the other broker's run. None: there are too many brokers."""
        peer = self.peers.get(name)
        if peer is not None and peer.incarnation == incarnation:
            return peer
        if peer is not None:
            self._drop(peer, f"broker {name} has restarted", now)
        if len(self.peers) >= MAX_PEERS:
            self._io.log_limited("too many brokers", broker=name, most=MAX_PEERS)
            return None
        self._links += 1
        link = Link(self.name, self.incarnation, self._max_message, self._links)
        link.identity = self.membership.identity
        peer = self.peers[name] = Peer(name, incarnation, link, now, self.settings.adopt_after)
        return peer

    def _silence(self, peer: Peer, now: float) -> None:
        if not peer.is_silent:
            peer.is_silent = True
            self._workers.silent(peer, now)
            self._broker.availability.partition(peer.services, self)
            if self.is_connected:
                self._io.remark("broker silent", level="warning", cluster=self.settings.cluster, broker=peer.name)

    def _drop(self, peer: Peer, reason: str, now: float) -> None:
        """End everything with a broker that is gone, or that has restarted."""
        del self.peers[peer.name]
        self._workers.gone(peer, reason, now)
        self.taken.gone(peer, now)
        self.questions.gone(peer, now)
        self.hub.gone(peer, reason, now)
        self.shares.gone(peer, now)
        self._tables.gone(peer, now)
        self._broker.limiter.declare_elsewhere(peer.name, {}, now)
        self._io.remark("broker left", level="warning", cluster=self.settings.cluster, broker=peer.name, reason=reason)

    # ---------------------------------------------------------------- links

    def _receive_packet(self, subject: Frame, reply: Frame, headers: Frame, payload: Frame, now: float) -> None:
        try:
            self._handle_packet(read_packet(bytes(payload)), now)
        except Malformed as problem:
            self._io.log_limited("bad message", reason=problem.reason, detail=problem.detail)

    def _handle_packet(self, packet: Packet, now: float) -> None:
        if packet.broker == self.name or now < self.membership.takes_part_at:
            return
        if self._ignores(packet.broker, packet.incarnation, packet.identity, now):
            return
        peer = self._peer(packet.broker, packet.incarnation, now)
        if peer is not None and peer.link.is_from_another(packet):
            self._drop(peer, f"broker {peer.name} has dropped its link", now)
            peer = self._peer(packet.broker, packet.incarnation, now)
        if peer is None:
            return
        for record in peer.link.receive(packet, now):
            self._handle(peer, record, packet.acknowledged, now)
        self._request_flush()

    def _handle(self, peer: Peer, record: AnyRecord, acknowledged: int, now: float) -> None:
        if type(record) is Give:  # of a struct of msgspec, `isinstance` takes several times as long
            self.taken.give(peer, record, now)
        elif type(record) is Result or type(record) is Failed:
            if shard_of(record.token) != CALL:
                self.hub.take(peer, record, now)
            else:
                self._workers.outcome(peer, record, now)
        elif type(record) is Ack:
            self.hub.take_ack(record.token)
        elif type(record) is Busy:
            self._workers.busy(peer, record, now)
        elif type(record) is Free:
            self._workers.free(peer, record, acknowledged, now)
        elif type(record) is Progress:
            if shard_of(record.token) != CALL:
                self.hub.take(peer, record, now)
            else:
                self._workers.progress(peer, record, now)
        else:
            self.receivers[type(record)](peer, record, now)

    def send(self, peer: Peer, record: AnyRecord) -> bool:
        """Send a record to another broker, with everything else of this iteration. Returns False if that does not
        read."""
        if peer.link.is_full:
            return False
        peer.link.add(record)
        self._request_flush()
        return True

    def _request_flush(self) -> None:
        if not self._is_flush_requested:
            self._is_flush_requested = True
            self._io.call_before_write(self._flush)

    def _flush(self, now: float) -> None:
        """Send one packet to each broker, with everything of this iteration."""
        self._is_flush_requested = False
        for peer in self.peers.values():
            if peer.freed:
                self.taken.add_free(peer)
            if packets := peer.link.flush(now):
                self._send(peer, packets)

    def _send(self, peer: Peer, packets: list[bytes]) -> None:
        subject = self._subjects.broker(peer.name, peer.incarnation)
        for packet in packets:
            self._publish(subject, packet)


class ConnectionWatcher(NatsWatcher):
    """Passes news about the connection to NATS to the cluster's side."""

    def __init__(self, side: ClusterSide) -> None:
        self._side = side

    def connected(self, info: ServerInfo, now: float) -> None:
        self._side.connected(info, now)

    def away(self, reason: str, now: float) -> None:
        self._side.away(now)
