"""Handshakes in progress: limits over all listeners whose clients prove who they are, or encrypt (R168).

A handshake costs a thousand times as much as a message, and its client has proved nothing yet. The handshakes of a
second are spread over it, so that no iteration has many of them: replies to heartbeats would be late. Connections over
the limit of a second are not accepted: they wait in the kernel's queue.

A client that opens a connection and sends nothing keeps a place. So a place may be taken from a handshake that has had
`PATIENCE` seconds: if the address of a newcomer has a quarter of all places, that of its own oldest handshake; if all
places are taken, that of the oldest handshake of the address that has the most. A genuine handshake is done by then,
and an address that only takes places takes those of its own handshakes. IPv6 counts by /64 network (R213).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.core.infinity import inf
from dragoman.core.owners import network_of

TLS: Final = "tls"
MIN_PER_ADDRESS: Final = 16
SLICES: Final = 40  # of a second; by default 5 handshakes begin in each, which take at most 5 ms
PATIENCE: Final = 2.0  # seconds for which a handshake keeps its place if others want it
LIMIT: Final = "a quarter of max_unauthenticated"
DISPLACED: Final = "its handshake was not done, and another connection needed its place (max_unauthenticated)"

Rejected = Callable[[str, str, str], None]  # mechanism, address, reason


class Handshake:
    """A handshake in progress. `drop` closes its connection."""

    __slots__ = ("address", "began", "drop", "is_over", "mechanism", "network")

    def __init__(self, mechanism: str, address: str, began: float, drop: Callable[[], None]) -> None:
        self.mechanism = mechanism
        self.address = address
        self.network = network_of(address)
        self.began = began
        self.drop = drop
        self.is_over = False  # it has ended, or has lost its place


class Handshakes:
    """Counts handshakes. Connections whose handshake is in progress are unauthenticated.

    `rejected` is called for each connection that `admits` does not admit, and for each handshake that loses its place.
    """

    def __init__(
        self,
        max_per_second: int,
        max_unauthenticated: int,
        clock: Callable[[], float],
        rejected: Rejected,
        patience: float = PATIENCE,
    ) -> None:
        self.in_progress = 0
        self.patience = patience
        self.totals: dict[tuple[str, str], int] = {}  # handshakes that have ended, by mechanism and result
        self._max_per_second = max_per_second
        self._max_unauthenticated = max_unauthenticated
        self._clock = clock
        self._rejected = rejected
        self._second = -1
        self._begun = 0  # in this second
        self._max_per_slice = -(-max_per_second // SLICES)
        self._slice = -1
        self._begun_in_slice = 0
        self._max_per_address = max(MIN_PER_ADDRESS, max_unauthenticated // 4)
        self._by_network: dict[str, dict[Handshake, None]] = {}  # in progress, the oldest of each first
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_full(self) -> bool:
        """True if no place is free."""
        return self.in_progress >= self._max_unauthenticated

    def wait_time(self) -> float:
        """Seconds until a handshake may begin: 0, the rest of this slice or second, or the time until one may lose its
        place, if no other one ends before."""
        now = self._clock()
        if int(now) != self._second:
            self._second, self._begun = int(now), 0
        if int(now * SLICES) != self._slice:
            self._slice, self._begun_in_slice = int(now * SLICES), 0
        if self.is_full and (seconds := self._first_to_go().began + self.patience - now) > 0.0:
            return seconds
        if self._begun >= self._max_per_second:
            return 1.0 - now % 1.0
        return (self._slice + 1) / SLICES - now if self._begun_in_slice >= self._max_per_slice else 0.0

    def when_one_ends(self, call: Callable[[], None]) -> None:
        """Call once, when the next handshake has ended."""
        self._waiting[call] = None

    def admits(self, mechanism: str, address: str) -> bool:
        """True if one more handshake of this address may begin."""
        own = self._by_network.get(network_of(address), {})
        if len(own) < self._max_per_address:
            return True
        oldest = next(iter(own))
        if oldest.began + self.patience <= self._clock():
            self._displace(oldest)
            return True
        reason = f"{len(own)} handshakes of this address are in progress, the maximum ({LIMIT})"
        self._rejected(mechanism, address, reason)
        return False

    def begin(self, mechanism: str, address: str, drop: Callable[[], None]) -> Handshake:
        """Count a handshake that begins. `drop` is called if it loses its place."""
        if self.is_full:
            self._displace(self._first_to_go())
        handshake = Handshake(mechanism, address, self._clock(), drop)
        self.in_progress += 1
        self._begun += 1
        self._begun_in_slice += 1
        self._by_network.setdefault(handshake.network, {})[handshake] = None
        return handshake

    def end(self, handshake: Handshake, *, is_done: bool) -> None:
        """Count the end of a handshake. `is_done`: the client is admitted."""
        if handshake.is_over:
            return
        handshake.is_over = True
        self.in_progress -= 1
        own = self._by_network[handshake.network]
        del own[handshake]
        if not own:
            del self._by_network[handshake.network]
        key = handshake.mechanism, "done" if is_done else "failed"
        self.totals[key] = self.totals.get(key, 0) + 1
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call()

    def _first_to_go(self) -> Handshake:
        """The oldest handshake of the network that has the most; the older one of two networks that have as many."""
        most, found, began = 0, None, inf
        for own in self._by_network.values():
            oldest = next(iter(own))
            if len(own) > most or (len(own) == most and oldest.began < began):
                most, found, began = len(own), oldest, oldest.began
        assert found is not None, "handshakes are in progress"
        return found

    def _displace(self, handshake: Handshake) -> None:
        """End a handshake, because another one needs its place."""
        self._rejected(handshake.mechanism, handshake.address, DISPLACED)
        self.end(handshake, is_done=False)
        handshake.drop()
