"""Routing ids of a listener's connections: one that comes again takes the place of the former."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.core.broker import Broker
from dragoman.dialects.interface import BrokerIO, Connection

CAME_BACK: Final = "its worker came back on a new connection"


class RoutingIds:
    """The connection that has each routing id now, apart for each of the listener's endpoints.

    The same routing id on a new connection is a new life: the old one ends (D3, R35, T7). `leave` is called with the
    former connection before it is closed, so that its worker leaves with a reason of its own.
    """

    def __init__(self, broker: Broker, io: BrokerIO, leave: Callable[[Connection, float], None]) -> None:
        self._broker = broker
        self._io = io
        self._leave = leave
        self.owners: dict[tuple[str, bytes], Connection] = {}

    def take(self, peer: Connection, now: float) -> None:
        """A connection has opened: its routing id, if it has one, is its own from now on."""
        if not peer.identity:
            return
        key = (peer.socket_name, peer.identity)
        former = self.owners.get(key)
        if former is not None:
            self._broker.counters.takeovers += 1
            self._io.remark("routing id taken over", level="warning", peer=peer, former=former.label)
            self._leave(former, now)
            self._io.close(former, "its routing id came on a new connection")
        self.owners[key] = peer

    def release(self, peer: Connection) -> None:
        """A connection has ended. Its routing id may be another's already."""
        key = (peer.socket_name, peer.identity)
        if self.owners.get(key) is peer:
            del self.owners[key]
