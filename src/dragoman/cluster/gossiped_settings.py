"""Decides when gossip carries the pauses and limits of services: the broker that has shard 0 sends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from dragoman.cluster.gossip import Settings, encode_settings
from dragoman.cluster.peers import Peer
from dragoman.cluster.service_settings import settings_of, with_times
from dragoman.cluster.shard_hub import ShardHub
from dragoman.cluster.store import NOTES
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf

GOSSIP_EVERY: Final = 1.0  # seconds, if nothing changes


@final
class GossipedSettings:
    """The pauses and limits of services, at one broker. `is_owner`: whether a broker has those that hold."""

    def __init__(self, broker: Broker, name: str, peers: dict[str, Peer], hub: ShardHub) -> None:
        self._broker = broker
        self._name = name
        self._peers = peers
        self._hub = hub
        self.is_owner: Callable[[str, float], bool] = self._has_notes
        self._sent: Settings | None = None  # as they were sent last; None: not since it has shard 0
        self._sent_at = -inf

    def _has_notes(self, broker: str, now: float) -> bool:
        """True for the broker that has shard 0. It has read them, if it is this one."""
        keeper = self._hub.keeper
        if keeper is None or keeper.shards.owner(NOTES, now) != broker:
            return False
        return broker != self._name or keeper.owns(NOTES)

    def granter(self, now: float) -> str:
        """Return the broker that grants shares of limits; empty: none is known."""
        return next((name for name in (self._name, *self._peers) if self.is_owner(name, now)), "")

    def to_send(self, now: float) -> bytes:
        """Return the settings, if this broker has them: each second, and when they change."""
        if not self.is_owner(self._name, now):
            self._sent = None
            return b""
        settings = settings_of(self._broker)
        if settings == self._sent and now < self._sent_at + GOSSIP_EVERY:
            return b""
        self._sent, self._sent_at = settings, now
        return encode_settings(with_times(settings, self._broker, now))
