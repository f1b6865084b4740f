"""Life signs of connections: handshakes that never end, peers that fell silent (D12)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from dragoman.core.deadlines import Deadlines
from dragoman.core.infinity import inf
from dragoman.server.connection import StreamConnection


class Heartbeat(Enum):
    """The state of a connection whose time has come."""

    ALIVE = auto()
    ASK = auto()  # it was silent for `carrier_ping`: send it the carrier's PING
    SILENT = auto()  # nothing came for `carrier_timeout`
    NO_HANDSHAKE = auto()  # the handshake was not done within `handshake_timeout`


ALIVE: Final = Heartbeat.ALIVE
ASK: Final = Heartbeat.ASK
SILENT: Final = Heartbeat.SILENT
NO_HANDSHAKE: Final = Heartbeat.NO_HANDSHAKE


class Heartbeats:
    """Tells which connections must be looked at, and judges each."""

    def __init__(self) -> None:
        self._deadlines: Deadlines[StreamConnection] = Deadlines()

    def began(self, peer: StreamConnection) -> None:
        self._deadlines.arm(peer, peer.heard + peer.limits.handshake_timeout)

    def opened(self, peer: StreamConnection, now: float) -> None:
        """The handshake is done. A peer whose carrier has no PING is not looked at any more."""
        self._deadlines.disarm(peer)
        if peer.carrier.ping() is not None:
            self._deadlines.arm(peer, now + peer.limits.carrier_ping)

    def forget(self, peer: StreamConnection) -> None:
        self._deadlines.disarm(peer)

    def next(self) -> float:
        """When the next connection must be looked at."""
        return self._deadlines.next()

    def due(self, now: float) -> Iterator[StreamConnection]:
        return self._deadlines.due(now)

    def judge(self, peer: StreamConnection, now: float) -> Heartbeat:
        """Judge a connection that is due. One that goes on is looked at again later."""
        limits = peer.limits
        stream = peer.stream
        if stream is not None and stream.backlog and stream.sent > peer.seen_sent:
            peer.heard = now  # our PING stands behind what it is taking in: that it takes it is a life sign, too
        peer.seen_sent = stream.sent if stream is not None else 0
        if not peer.is_open:
            return NO_HANDSHAKE
        # Compared as sums, as they were armed: a difference may fall short of what it was made from, and then an
        # iteration at the very instant would arm the same instant again, for ever.
        dead_at = peer.heard + limits.carrier_timeout
        ask_at = peer.heard + limits.carrier_ping
        if now >= dead_at:
            return SILENT
        if now >= ask_at:
            self._deadlines.arm(peer, min(now + limits.carrier_ping, dead_at))
            return ASK
        self._deadlines.arm(peer, ask_at)
        return ALIVE

    def excuse(self, peer: StreamConnection, gap: float, now: float) -> None:
        """The broker stood still for so long: the peer was not silent meanwhile, nor was its handshake late (D13)."""
        peer.heard = min(peer.heard + gap, now)
        if not peer.is_open and peer.alarm < inf:
            due = min(peer.alarm + gap, now + peer.limits.handshake_timeout)
            self._deadlines.disarm(peer)
            self._deadlines.arm(peer, due)

    @property
    def watched(self) -> int:
        """Connections that will be looked at."""
        return self._deadlines.armed
