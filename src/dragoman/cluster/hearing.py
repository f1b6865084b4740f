"""The hearing of a broker: NATS carries messages to it and from it, as its own gossip shows.

A broker receives its own gossip back from its NATS server, as all others do. While that does not return, the broker is
*deaf*: its server is frozen, cut off or gone. It hears nobody then, so the silence of the others says nothing, and the
broker takes nobody for gone. A broker that is the last one of its cluster hears itself, and goes on.

When its gossip returns, the time without it does not count as silence of the others. They are late, too: each has at
least `deaf_after` from then on until it is gone.
"""

from __future__ import annotations

from typing import Final, final

DEAF_AFTER: Final = 3.0  # seconds without its own gossip, of which some is sent every second


@final
class Hearing:
    """The hearing of one broker. It is deaf until its gossip returns for the first time."""

    def __init__(self, now: float, deaf_after: float = DEAF_AFTER) -> None:
        self.deaf_after = deaf_after
        self._is_away = True
        self._echoed_at = now  # time at which its own gossip returned last

    def away(self) -> None:
        """The connection to NATS has ended."""
        self._is_away = True

    def echoed(self, now: float) -> float:
        """Note that the gossip of this broker has returned. Returns the seconds in which it was deaf; 0: it was not."""
        gap = now - self._echoed_at if self.is_deaf(now) else 0.0
        self._is_away = False
        self._echoed_at = now
        return gap

    def is_deaf(self, now: float) -> bool:
        return self._is_away or now >= self.deaf_at

    @property
    def deaf_at(self) -> float:
        """Time at which it becomes deaf unless its gossip returns."""
        return self._echoed_at + self.deaf_after

    def moved(self, since: float, gap: float, gone_after: float, now: float) -> float:
        """Return the time from which the silence of another broker counts after `gap` seconds of deafness. `since`: the
        time before; `gone_after`: the silence after which it is gone."""
        return min(now, max(since + gap, now - gone_after + self.deaf_after))
