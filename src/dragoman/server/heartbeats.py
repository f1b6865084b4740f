"""Heartbeats of connections: detects unfinished handshakes and silent connections (D12)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from dragoman.core.deadlines import Deadlines
from dragoman.core.infinity import inf
from dragoman.server.connection import StreamConnection


class ConnectionState(Enum):
    """State of a connection that is due."""

    ALIVE = auto()
    SEND_PING = auto()  # silent for `carrier_ping`: send the carrier's PING
    SILENT = auto()  # nothing received for `carrier_timeout`
    NO_HANDSHAKE = auto()  # the handshake was not finished within `handshake_timeout`


ALIVE: Final = ConnectionState.ALIVE
SEND_PING: Final = ConnectionState.SEND_PING
SILENT: Final = ConnectionState.SILENT
NO_HANDSHAKE: Final = ConnectionState.NO_HANDSHAKE


class Heartbeats:
    """Finds connections that are due, and checks each."""

    def __init__(self) -> None:
        self._deadlines: Deadlines[StreamConnection] = Deadlines()

    def began(self, peer: StreamConnection) -> None:
        self._deadlines.arm(peer, peer.last_received + peer.limits.handshake_timeout)

    def opened(self, peer: StreamConnection, now: float) -> None:
        """The handshake is finished. A connection whose carrier has no PING is not checked any more."""
        self._deadlines.disarm(peer)
        if peer.carrier.has_ping:
            self._deadlines.arm(peer, now + peer.limits.carrier_ping)

    def forget(self, peer: StreamConnection) -> None:
        self._deadlines.disarm(peer)

    def next(self) -> float:
        """Return the time of the next check."""
        return self._deadlines.next()

    def due(self, now: float) -> Iterator[StreamConnection]:
        return self._deadlines.due(now)

    def check(self, peer: StreamConnection, now: float) -> ConnectionState:
        """Check a connection that is due. A connection that stays open is checked again later."""
        limits = peer.limits
        stream = peer.stream
        if stream is not None and stream.backlog and stream.sent > peer.seen_sent:
            peer.last_received = now  # the PING waits behind unsent data: progress with that counts as a heartbeat
        peer.seen_sent = stream.sent if stream is not None else 0
        if not peer.is_open:
            return NO_HANDSHAKE
        # Compared as sums, as they were armed. A difference may be rounded to less than the period, and an iteration at
        # that instant would then arm the same instant again, forever.
        dead_at = peer.last_received + limits.carrier_timeout
        ask_at = peer.last_received + limits.carrier_ping
        if now >= ask_at and stream is not None and stream.is_queued:  # it is not silent: it waits for its turn (R214)
            self._deadlines.arm(peer, now + limits.carrier_ping)
            return ALIVE
        if now >= dead_at:
            return SILENT
        if now >= ask_at:
            self._deadlines.arm(peer, min(now + limits.carrier_ping, dead_at))
            return SEND_PING
        self._deadlines.arm(peer, ask_at)
        return ALIVE

    def extend(self, peer: StreamConnection, gap: float, now: float) -> None:
        """Move the due times by `gap` seconds, in which the broker was paused (D13)."""
        peer.last_received = min(peer.last_received + gap, now)
        if not peer.is_open and peer.alarm < inf:
            due = min(peer.alarm + gap, now + peer.limits.handshake_timeout)
            self._deadlines.disarm(peer)
            self._deadlines.arm(peer, due)

    @property
    def watched(self) -> int:
        """Number of connections that have a timer."""
        return self._deadlines.armed
