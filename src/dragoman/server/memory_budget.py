"""Limits on buffered bytes: unsent data, and incomplete messages (R17, L6).

What the broker has piled up for a connection is no fault of the connection: many results may be ready in one moment.
So a connection with too many unsent bytes is closed only if it does not read.
"""

from __future__ import annotations

from typing import Final, final

from dragoman.core.memory import MemoryAccount, Transit
from dragoman.server.connection import StreamConnection

OverBudget = tuple[StreamConnection, str] | None  # the connection to close, and the reason

SLOWEST: Final = 64 << 10  # bytes a second that a connection must take while it has too many unsent


@final
class Pace:
    """Bytes that a connection with too many unsent had taken at a time."""

    __slots__ = ("sent", "since")

    def __init__(self, sent: int, since: float) -> None:
        self.sent = sent
        self.since = since


class MemoryBudget:
    """Tracks buffered bytes, and names the connection to close when a limit is exceeded."""

    def __init__(self, memory: MemoryAccount) -> None:
        self._memory = memory
        self._backlogged: dict[StreamConnection, int] = {}  # unsent bytes of connections, when last measured
        self.over: dict[StreamConnection, Pace] = {}  # connections with too many unsent bytes
        self._receiving: dict[StreamConnection, None] = {}  # connections with an incomplete message
        self.received = 0  # bytes of those messages
        memory.measure = self.measure_unsent

    def check_unsent(self, peer: StreamConnection, now: float) -> OverBudget:
        """Check the unsent data of all connections, because this one has some. From one with too much nothing is read
        until it has taken enough."""
        assert peer.stream is not None
        self._backlogged[peer] = peer.stream.backlog
        if peer not in self.over and _is_over(peer):
            self.over[peer] = Pace(peer.stream.sent, now)
            if not peer.dialled:
                peer.stream.pause()  # it makes no more calls while it does not take the answers
        self.measure_unsent()
        if self._memory.room() >= 0 or not self._backlogged:
            return None
        largest = max(self._backlogged, key=self._backlogged.__getitem__)
        return largest, f"{self._backlogged[largest]} bytes unsent, the most of all connections (max_memory)"

    def stalled(self, now: float) -> list[tuple[StreamConnection, str]]:
        """Return the connections that do not read although too many bytes wait. One message may always wait."""
        found = []
        for peer, pace in list(self.over.items()):
            stream = peer.stream
            if stream is None or peer.is_lost or peer.closing is not None or not _is_over(peer):
                del self.over[peer]
                if stream is not None and not peer.is_lost:
                    stream.resume()
                continue
            passed = now - pace.since
            if passed >= peer.limits.stall_timeout:
                if stream.sent - pace.sent < SLOWEST * passed:
                    taken = f"{stream.sent - pace.sent} taken within {passed:.0f} s"
                    found.append((peer, f"{stream.backlog} bytes unsent (max_send_buffer), {taken}"))
                self.over[peer] = Pace(stream.sent, now)
        return found

    def extend(self, gap: float) -> None:
        """Do not count a pause of the broker."""
        for pace in self.over.values():
            pace.since += gap

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
        self.over.pop(peer, None)
        if self._backlogged.pop(peer, 0):
            self._memory.set_transit(Transit.UNSENT, sum(self._backlogged.values()))

    def _count_received(self, change: int) -> None:
        self.received += change
        self._memory.set_transit(Transit.INCOMPLETE, self.received)


def _is_over(peer: StreamConnection) -> bool:
    return peer.stream is not None and peer.stream.backlog - peer.largest > peer.limits.max_send_buffer
