"""Handshakes in progress: limits over all listeners whose clients prove who they are, or encrypt (R168).

A handshake costs a thousand times as much as a message, and its client has proved nothing yet. Connections over a limit
are not accepted: they wait in the kernel's queue. The handshakes of a second are spread over it, so that no iteration
has many of them: replies to heartbeats would be late. One address may have a quarter of the handshakes in progress.
More of its connections are closed, so that it does not keep out all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.core.infinity import inf

TLS: Final = "tls"
MIN_PER_ADDRESS: Final = 16
SLICES: Final = 40  # of a second; by default 5 handshakes begin in each, which take at most 5 ms

Rejected = Callable[[str, str, str], None]  # mechanism, address, reason


class Handshakes:
    """Counts handshakes. Connections whose handshake is in progress are unauthenticated.

    `rejected` is called for each connection that `admits` does not admit.
    """

    def __init__(
        self, max_per_second: int, max_unauthenticated: int, clock: Callable[[], float], rejected: Rejected
    ) -> None:
        self.in_progress = 0
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
        self._by_address: dict[str, int] = {}  # handshakes in progress
        self._waiting: dict[Callable[[], None], None] = {}

    def wait_time(self) -> float:
        """Seconds until a handshake may begin: 0, the rest of this slice or second, or inf until another one has
        ended."""
        now = self._clock()
        if int(now) != self._second:
            self._second, self._begun = int(now), 0
        if int(now * SLICES) != self._slice:
            self._slice, self._begun_in_slice = int(now * SLICES), 0
        if self.in_progress >= self._max_unauthenticated:
            return inf
        if self._begun >= self._max_per_second:
            return 1.0 - now % 1.0
        return (self._slice + 1) / SLICES - now if self._begun_in_slice >= self._max_per_slice else 0.0

    def when_one_ends(self, call: Callable[[], None]) -> None:
        """Call once, when the next handshake has ended."""
        self._waiting[call] = None

    def admits(self, mechanism: str, address: str) -> bool:
        """True if one more handshake of this address may begin."""
        count = self._by_address.get(address, 0)
        if count < self._max_per_address:
            return True
        limit = "a quarter of max_unauthenticated"
        self._rejected(mechanism, address, f"{count} handshakes of this address are in progress, the maximum ({limit})")
        return False

    def begin(self, address: str) -> None:
        self.in_progress += 1
        self._begun += 1
        self._begun_in_slice += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1

    def end(self, mechanism: str, address: str, *, is_done: bool) -> None:
        """Count the end of a handshake. `is_done`: the client is admitted."""
        self.in_progress -= 1
        left = self._by_address.pop(address) - 1
        if left:
            self._by_address[address] = left
        key = mechanism, "done" if is_done else "failed"
        self.totals[key] = self.totals.get(key, 0) + 1
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call()
