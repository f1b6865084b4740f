"""Limits on buffered bytes: unsent data, and incomplete messages (R17, L6)."""

from __future__ import annotations

from dragoman.core.memory import MemoryAccount, Transit
from dragoman.server.connection import StreamConnection

OverBudget = tuple[StreamConnection, str] | None  # the connection to close, and the reason


class MemoryBudget:
    """Tracks buffered bytes, and names the connection to close when a limit is exceeded."""

    def __init__(self, memory: MemoryAccount) -> None:
        self._memory = memory
        self._backlogged: dict[StreamConnection, int] = {}  # unsent bytes of connections, when last measured
        self._receiving: dict[StreamConnection, None] = {}  # connections with an incomplete message
        self.received = 0  # bytes of those messages
        memory.measure = self.measure_unsent

    def check_unsent(self, peer: StreamConnection) -> OverBudget:
        """Check the unsent data of one connection and of all. One message may always wait."""
        assert peer.stream is not None
        backlog = self._backlogged[peer] = peer.stream.backlog
        if backlog - peer.largest > peer.limits.max_send_buffer:
            return peer, f"{backlog} bytes unsent (max_send_buffer)"
        self.measure_unsent()
        if self._memory.room() >= 0 or not self._backlogged:
            return None
        largest = max(self._backlogged, key=self._backlogged.__getitem__)
        return largest, f"{self._backlogged[largest]} bytes unsent, the most of all connections (max_memory)"

    def measure_unsent(self) -> None:
        """Read the unsent bytes of all connections that had some. Those of a connection that closes do not count."""
        measured = {}
        for each in self._backlogged:
            if not each.is_lost and each.closing is None and each.stream is not None and each.stream.backlog:
                measured[each] = each.stream.backlog
        self._backlogged = measured
        self._memory.set_transit(Transit.UNSENT, sum(measured.values()))

    def check_partial(self, peer: StreamConnection) -> OverBudget:
        """Check the size of all incomplete messages together."""
        held = peer.carrier.holding
        self._count_received(held - peer.holding)
        peer.holding = held
        if held:
            self._receiving[peer] = None
        else:
            self._receiving.pop(peer, None)
        if not held or self._memory.room() >= 0:
            return None
        largest = max(self._receiving, key=lambda each: each.holding)
        reason = f"{largest.holding} bytes of an incomplete message, the most of all connections (max_memory)"
        largest.carrier.release()
        self.forget(largest)
        return largest, reason

    def forget(self, peer: StreamConnection) -> None:
        if peer.holding:
            self._count_received(-peer.holding)
            peer.holding = 0
        self._receiving.pop(peer, None)
        if self._backlogged.pop(peer, 0):
            self._memory.set_transit(Transit.UNSENT, sum(self._backlogged.values()))

    def _count_received(self, change: int) -> None:
        self.received += change
        self._memory.set_transit(Transit.INCOMPLETE, self.received)
