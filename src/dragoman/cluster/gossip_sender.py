"""Sends the gossip of this broker: when something has changed, and every second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from msgspec.structs import replace

from dragoman.cluster.capacity import Capacity
from dragoman.cluster.gossip import Gossip, encode_gossip
from dragoman.cluster.gossiped_settings import GOSSIP_EVERY, GossipedSettings
from dragoman.cluster.membership import Membership
from dragoman.cluster.peers import Peer
from dragoman.cluster.records import VERSION
from dragoman.cluster.service_settings import declared_here
from dragoman.cluster.settings import ClusterSettings
from dragoman.cluster.shard_hub import ShardHub
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf

GOSSIP_SOONEST: Final = 0.02  # seconds between two changes; more with many services
GOSSIP_COST: Final = 0.00002  # seconds more for each service
GOSSIP_PER_BROKER: Final = 0.001  # seconds more for each other broker: each receives the gossip of all


@final
class GossipSender:
    """Decides when gossip is sent, and what is in it."""

    def __init__(
        self,
        broker: Broker,
        settings: ClusterSettings,
        membership: Membership,
        capacity: Capacity,
        peers: dict[str, Peer],
        hub: ShardHub,
        notes: GossipedSettings,
        publish: Callable[[bytes], None],
    ) -> None:
        self.clock: float | None = None  # seconds by which the clock of this broker is ahead of that of NATS
        self._broker = broker
        self._settings = settings
        self._membership = membership
        self._capacity = capacity
        self._peers = peers
        self._hub = hub
        self._notes = notes
        self._publish = publish
        self._sent: Gossip | None = None  # as it was sent last
        self._sent_at = -inf
        self._looked_at = -inf  # time at which the capacity was last compared

    @property
    def has_told_end(self) -> bool:
        """True if the others were told that this broker stops."""
        return self._sent is not None and self._sent.draining

    def send_soon(self) -> None:
        """Send gossip at the next tick."""
        self._sent, self._looked_at = None, -inf

    def tick(self, now: float) -> float:
        """Returns the time of the next call."""
        soonest = self._looked_at + self._interval()
        if now < soonest:
            return soonest
        self._looked_at = now
        made = self._make(now)
        is_due = now >= self._sent_at + GOSSIP_EVERY
        settings = self._notes.to_send(now)
        if made != self._sent or is_due or settings:
            self._sent, self._sent_at = made, now
            keeper = self._hub.keeper
            ends = keeper.ends() if keeper is not None else {}
            self._publish(encode_gossip(replace(made, settings=settings, ends=ends) if settings or ends else made))
        return self._sent_at + GOSSIP_EVERY

    def send_last(self, now: float) -> None:
        """Tell the others that this broker has stopped."""
        self._publish(encode_gossip(replace(self._make(now), stopped=True)))

    def _interval(self) -> float:
        """Return the shortest time between two changes. With more brokers it is longer, so that each of them receives
        at most a thousand messages a second."""
        services = len(self._broker.worker_registry.services)
        return GOSSIP_SOONEST + GOSSIP_COST * services + GOSSIP_PER_BROKER * len(self._peers)

    def _make(self, now: float) -> Gossip:
        keeper = self._hub.keeper
        services = self._capacity.services(now)
        counted = self._capacity.counted
        return Gossip(
            VERSION,
            self._hub.name,
            self._hub.incarnation,
            self._settings.release,
            self._broker.dispatch.is_draining,
            services,
            {peer.name: peer.link.received for peer in self._peers.values()},
            self._settings.access_digest(),
            self._membership.uptime(now),
            keeper.shards.epochs if keeper is not None else {},
            declared_here(self._broker),
            clock=self.clock,
            identity=self._membership.identity,
            workers=counted.workers,
            idle=counted.idle,
            resting=keeper is not None and keeper.shards.is_resting(now),
        )
