"""The NATS servers of a cluster, and the one to dial next.

Servers come from the address and from INFO of each server (`connect_urls`). The first one is chosen by chance, so that
brokers spread over the servers. After a failure the others come first, and each server is tried again after a delay
that doubles up to `LONGEST`, with jitter: brokers that lost the same server do not all come back at once (R23).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dragoman.cluster.nats_address import MAX_SERVERS, NatsAddress, NatsPlace
from dragoman.core.infinity import inf

SHORTEST: Final = 0.1  # seconds
LONGEST: Final = 2.0
SPREAD: Final = 0.5  # fraction of a delay that jitter adds or subtracts
LEAVING: Final = 30.0  # seconds for which a server that stops is not dialled, if there is another


class Candidate:
    """A server and its last failures."""

    __slots__ = ("failures", "is_configured", "order", "place", "ready_at")

    def __init__(self, place: NatsPlace, order: float, is_configured: bool) -> None:
        self.place = place
        self.order = order  # the lowest comes first
        self.is_configured = is_configured
        self.failures = 0
        self.ready_at = -inf  # not dialled before


class ServerPool:
    """Chooses servers. `jitter` returns a random number between -1 and 1."""

    def __init__(self, address: NatsAddress, jitter: Callable[[], float]) -> None:
        self.address = address
        self._jitter = jitter
        self._uses = 0.0
        self._candidates = {place: Candidate(place, jitter(), True) for place in address.places}

    def __len__(self) -> int:
        return len(self._candidates)

    @property
    def places(self) -> list[NatsPlace]:
        """All known servers, those of the address first."""
        return list(self._candidates)

    def pick(self, now: float) -> NatsPlace | None:
        """Return the server to dial now; None: all wait until `next_try`."""
        ready = [each for each in self._candidates.values() if each.ready_at <= now]
        if not ready:
            return None
        return min(ready, key=lambda each: (each.failures, each.order)).place

    def next_try(self) -> float:
        """Return the time at which a server may be dialled; in the past if one may be now."""
        return min(each.ready_at for each in self._candidates.values())

    def worked(self, place: NatsPlace, urls: Sequence[str], now: float) -> None:
        """Note that a connection was opened, and the servers that this one named in INFO."""
        candidate = self._candidates.get(place)
        if candidate is not None:
            candidate.failures = 0
            candidate.ready_at = -inf
        self.learn(place, urls)

    def learn(self, place: NatsPlace, urls: Sequence[str]) -> None:
        """Take the servers that a server has named. Those named before and not any more are forgotten."""
        if not urls:
            return
        named = [found for url in urls if (found := self.address.other(url, place)) is not None]
        for each in list(self._candidates.values()):
            if not each.is_configured and each.place not in named and each.place != place:
                del self._candidates[each.place]
        for found in named:
            if found not in self._candidates and len(self._candidates) < MAX_SERVERS:
                self._candidates[found] = Candidate(found, self._jitter(), False)

    def failed(self, place: NatsPlace, now: float) -> None:
        """Note that a server could not be reached, or that its connection ended."""
        candidate = self._candidates.get(place)
        if candidate is None:
            return
        delay = min(LONGEST / (1.0 + SPREAD), SHORTEST * 2.0 ** min(candidate.failures, 10))
        candidate.failures += 1
        candidate.ready_at = now + delay * (1.0 + SPREAD * self._jitter())
        self._uses += 2.0
        candidate.order = self._uses + self._jitter()  # behind all others that have failed as often

    def leaves(self, place: NatsPlace, now: float) -> None:
        """Note that a server stops soon (lame duck mode): others are dialled, if there are any."""
        candidate = self._candidates.get(place)
        if candidate is not None and len(self._candidates) > 1:
            candidate.ready_at = now + LEAVING
