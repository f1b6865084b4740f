"""The owners of shards, as this broker knows them, for the outcomes that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from dragoman.cluster.held_outcomes import Owner, Owners
from dragoman.cluster.hub import Hub
from dragoman.cluster.records import Held, Outcome, Progress
from dragoman.cluster.shards import Shards


@final
class ShardOwners(Owners):
    """Finds the owner of an attempt's shard."""

    def __init__(self, shards: Shards, hub: Hub, shard_of: Callable[[bytes], int]) -> None:
        """`shard_of`: returns the shard of an attempt; -1: it is in none."""
        self._shards = shards
        self._hub = hub
        self._shard_of = shard_of

    def owner_of(self, token: bytes) -> Owner | None:
        number = self._shard_of(token)
        owner = self._shards.run_of(number) if number >= 0 else None
        if owner is None or owner[0] == self._hub.name or self._hub.live_peer(owner[0], owner[1]) is not None:
            return owner
        return None

    def send_outcome(self, owner: Owner, record: Outcome | Held | Progress, now: float) -> None:
        if owner[0] == self._hub.name:
            self._hub.take(None, record, now)
            return
        peer = self._hub.live_peer(owner[0], owner[1])
        assert peer is not None
        self._hub.send(peer, record)
