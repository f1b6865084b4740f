"""What peers may cost in bytes that wait: for them to read, or for the end of a message of theirs (R17, L6)."""

from __future__ import annotations

from dragoman.server.connection import StreamConnection

Verdict = tuple[StreamConnection, str] | None  # whom to disconnect, and why


class MemoryBudget:
    def __init__(self, max_memory: int) -> None:
        self._max_memory = max_memory
        self._backlogged: dict[StreamConnection, None] = {}  # peers that do not read as fast as we write
        self._receiving: dict[StreamConnection, None] = {}  # peers in the middle of a message
        self.received = 0  # bytes of those messages

    def look_at_backlog(self, peer: StreamConnection) -> Verdict:
        """A peer that does not read may cost so much, and all of them together; one message may always wait."""
        assert peer.stream is not None
        self._backlogged[peer] = None
        backlog = peer.stream.backlog
        if backlog - peer.largest > peer.limits.max_send_buffer:
            return peer, f"{backlog} bytes wait for it to read (max_send_buffer)"
        for each in list(self._backlogged):
            if each.is_lost or each.stream is None or not each.stream.backlog:
                del self._backlogged[each]
        held = {each: each.stream.backlog for each in self._backlogged if each.stream and each.closing is None}
        if sum(held.values()) <= self._max_memory:
            return None
        largest = max(held, key=held.__getitem__)
        return largest, f"{held[largest]} bytes wait for it to read, the most of all peers (max_memory)"

    def look_at_unfinished(self, peer: StreamConnection) -> Verdict:
        """Messages that are only half there may cost so much together and no more."""
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
        reason = f"{largest.holding} bytes of a message without an end, the most of all peers (max_memory)"
        largest.carrier.release()
        self.forget(largest)
        return largest, reason

    def forget(self, peer: StreamConnection) -> None:
        self.received -= peer.holding
        peer.holding = 0
        self._receiving.pop(peer, None)
        self._backlogged.pop(peer, None)
