"""The order in which shards that were read are restored: one at a time, shard 0 first.

Shard 0 has the pauses and limits of services, and jobs start as soon as they are restored. So the others wait until
this broker has read shard 0, or has heard its owner; but not for ever, because shard 0 may be unusable.
"""

from __future__ import annotations

from typing import Final, final

from dragoman.cluster.hub import Hub
from dragoman.cluster.store import NOTES

SETTINGS_WITHIN: Final = 20.0  # seconds


@final
class RestoreOrder:
    """Numbers of shards that wait to be restored."""

    def __init__(self, hub: Hub) -> None:
        self.current: int | None = None  # it is being restored
        self._hub = hub
        self._waiting: dict[int, float] = {}  # with the time since which each waits

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, shard: int, now: float) -> None:
        self._waiting[shard] = now

    def remove(self, shard: int) -> None:
        """The shard is restored, or has been lost before that."""
        self._waiting.pop(shard, None)
        if self.current == shard:
            self.current = None

    def next(self, now: float) -> int | None:
        """Return the shard to restore now; None: there is none, or its settings are not known yet."""
        if self.current is None:
            for shard, since in self._waiting.items():
                if NOTES in self._waiting:
                    self.current = NOTES
                elif self._hub.has_settings or now >= since + SETTINGS_WITHIN:
                    self.current = shard
                break
        return self.current
