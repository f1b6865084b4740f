"""Routing ids of a listener's connections: a new connection with the same id replaces the older one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.core.broker import Broker
from dragoman.dialects.interface import BrokerIO, Connection

RECONNECTED: Final = "its worker came back on a new connection"


class RoutingIds:
    """Maps each routing id, per listener socket, to its current connection.

    The same routing id on a new connection is a new worker, and the old one ends (D3, R35, T7). `on_replaced` is
    called with the old connection before it is closed, so that its worker leaves with its own reason.

    A connection of another principal does not replace it (R176). The new connection is closed without a message: the
    handshake is over, and no dialect has one for this. Its library dials again, and finds the id free once the older
    connection has ended.
    """

    def __init__(self, broker: Broker, io: BrokerIO, on_replaced: Callable[[Connection, float], None]) -> None:
        self._broker = broker
        self._io = io
        self._on_replaced = on_replaced
        self.owners: dict[tuple[str, bytes], Connection] = {}

    def take(self, peer: Connection, now: float) -> bool:
        """Assign the routing id of a new connection, if it has one, to this connection. False: another principal uses
        it, and the new connection is closed."""
        if not peer.identity:
            return True
        key = (peer.socket_name, peer.identity)
        former = self.owners.get(key)
        if former is not None:
            if former.owner.principal is not peer.owner.principal:
                self._io.log_limited("routing id refused", peer=peer, former=former.label)
                self._io.close(peer, "its routing id is used by another principal")
                return False
            self._broker.counters.takeovers += 1
            self._io.remark("routing id taken over", level="warning", peer=peer, former=former.label)
            self._on_replaced(former, now)
            self._io.close(former, "its routing id is used by a new connection")
        self.owners[key] = peer
        return True

    def release(self, peer: Connection) -> None:
        """Remove the routing id of an ended connection, unless a newer connection has it."""
        key = (peer.socket_name, peer.identity)
        if self.owners.get(key) is peer:
            del self.owners[key]
