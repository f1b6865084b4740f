"""Handshakes in progress: limits over all listeners whose clients prove who they are, or encrypt (R168).

A handshake costs a thousand times as much as a message, and its client has proved nothing yet. Connections over a limit
are not accepted: they wait in the kernel's queue. One address may have a quarter of the handshakes in progress. More of
its connections are closed, so that it does not keep out all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.core.infinity import inf

TLS: Final = "tls"
MIN_PER_ADDRESS: Final = 16


class Handshakes:
    """Counts handshakes. Connections whose handshake is in progress are unauthenticated."""

    def __init__(self, max_per_second: int, max_unauthenticated: int, clock: Callable[[], float]) -> None:
        self.in_progress = 0
        self.totals: dict[tuple[str, str], int] = {}  # handshakes that have ended, by mechanism and result
        self._max_per_second = max_per_second
        self._max_unauthenticated = max_unauthenticated
        self._clock = clock
        self._second = -1
        self._begun = 0  # in this second
        self._max_per_address = max(MIN_PER_ADDRESS, max_unauthenticated // 4)
        self._by_address: dict[str, int] = {}  # handshakes in progress
        self._waiting: dict[Callable[[], None], None] = {}

    def wait_time(self) -> float:
        """Seconds until a handshake may begin: 0, the rest of this second, or inf until another one has ended."""
        now = self._clock()
        if int(now) != self._second:
            self._second, self._begun = int(now), 0
        if self.in_progress >= self._max_unauthenticated:
            return inf
        return 1.0 - now % 1.0 if self._begun >= self._max_per_second else 0.0

    def when_one_ends(self, call: Callable[[], None]) -> None:
        """Call once, when the next handshake has ended."""
        self._waiting[call] = None

    def admits(self, address: str) -> bool:
        """True if one more handshake of this address may begin."""
        return self._by_address.get(address, 0) < self._max_per_address

    def begin(self, address: str) -> None:
        self.in_progress += 1
        self._begun += 1
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
