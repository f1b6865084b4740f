"""Limits on buffered bytes: unsent data, and incomplete messages (R17, L6)."""

from __future__ import annotations

from dragoman.server.connection import StreamConnection

OverBudget = tuple[StreamConnection, str] | None  # the connection to close, and the reason


class MemoryBudget:
    """Tracks buffered bytes, and names the connection to close when a limit is exceeded."""

    def __init__(self, max_memory: int) -> None:
        self._max_memory = max_memory
        self._backlogged: dict[StreamConnection, None] = {}  # connections with unsent data
        self._receiving: dict[StreamConnection, None] = {}  # connections with an incomplete message
        self.received = 0  # bytes of those messages

    def check_unsent(self, peer: StreamConnection) -> OverBudget:
        """Check the unsent data of one connection and of all. One message may always wait."""
        assert peer.stream is not None
        self._backlogged[peer] = None
        backlog = peer.stream.backlog
        if backlog - peer.largest > peer.limits.max_send_buffer:
            return peer, f"{backlog} bytes unsent (max_send_buffer)"
        for each in list(self._backlogged):
            if each.is_lost or each.stream is None or not each.stream.backlog:
                del self._backlogged[each]
        held = {each: each.stream.backlog for each in self._backlogged if each.stream and each.closing is None}
        if sum(held.values()) <= self._max_memory:
            return None
        largest = max(held, key=held.__getitem__)
        return largest, f"{held[largest]} bytes unsent, the most of all connections (max_memory)"

    def check_partial(self, peer: StreamConnection) -> OverBudget:
        """Check the size of all incomplete messages together."""
        held = peer.carrier.holding
        self.received += held - peer.holding
        peer.holding = held
        if held:
            self._receiving[peer] = None
        else:
            self._receiving.pop(peer, None)
        if self.received <= self._max_memory:
            return None
        largest = max(self._receiving, key=lambda each: each.holding)
        reason = f"{largest.holding} bytes of an incomplete message, the most of all connections (max_memory)"
        largest.carrier.release()
        self.forget(largest)
        return largest, reason

    def forget(self, peer: StreamConnection) -> None:
        self.received -= peer.holding
        peer.holding = 0
        self._receiving.pop(peer, None)
        self._backlogged.pop(peer, None)
