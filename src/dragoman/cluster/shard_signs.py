"""Says which shards of the cluster cannot be used, as one broker knows: in its log, and in sentences for its views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from dragoman.cluster.hub import Hub
from dragoman.cluster.log import ShardLog
from dragoman.cluster.shards import Shards
from dragoman.core.infinity import inf

REPAIR: Final = "repair the log, or move what can be read with `dragoman export --skip-damaged`"
TELL_EVERY: Final = 60.0  # seconds between two lines about a lost log


@final
class ShardSigns:
    """The signs of shards whose log cannot be trusted, or is lost while this broker has it."""

    def __init__(self, shards: Shards, logs: Sequence[ShardLog], hub: Hub) -> None:
        self._shards = shards
        self._logs = logs
        self._hub = hub
        self._tell_at: dict[int, float] = {}  # of lost logs

    def tick(self, number: int, now: float) -> float:
        """Say every minute that the log of a shard that is ours is lost. Its jobs stay: nobody else has them. Returns
        the time of the next call."""
        loss = self._logs[number].loss
        if not loss:
            if self._tell_at:
                self._tell_at.pop(number, None)
            return inf
        if now >= self._tell_at.get(number, -inf):
            self._tell_at[number] = now + TELL_EVERY
            reason = f"{loss}; nothing of the shard is acknowledged: {REPAIR}"
            self._hub.remark("shard log unusable", "error", shard=number, reason=reason)
        return self._tell_at[number]

    def unusable(self, number: int) -> str:
        """Return a sentence about a shard that no broker can use now; empty: there is none."""
        loss = self._logs[number].loss
        reason = self._shards.unusable(number) or (f"{loss}; {REPAIR}" if loss else "")
        return f"shard {number} of the cluster is unusable: {reason}" if reason else ""

    def unusables(self) -> list[str]:
        """Return a sentence about each such shard."""
        found = [self.unusable(number) for number in range(len(self._logs))]
        return [each for each in found if each]
