"""One socket of a listener."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

from dragoman.carriers.carrier import Carrier
from dragoman.dialects.interface import BrokerSide
from dragoman.sdk.address import SocketAddress
from dragoman.server.authentication import AuthMechanism, ListenerAuth
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.handshakes import TLS
from dragoman.server.local_peers import LoopbackRule
from dragoman.streams.byte_stream import ByteStream
from dragoman.streams.stream import Stream
from dragoman.streams.tls import TlsStream
from dragoman.streams.tls_context import ListenerTls
from dragoman.streams.turn import Turn


@dataclass(frozen=True, slots=True)
class ListenerSocket:
    """The address of a listening socket, and the broker side, carrier and protection of its connections."""

    session: BrokerSide
    socket_name: str
    place: SocketAddress
    carrier: Callable[[], Carrier]
    limits: ConnectionLimits
    is_for_peers: bool = True  # else a connection is one short exchange (R23)
    loopback: LoopbackRule = LoopbackRule.OWNER
    tls: ListenerTls | None = None
    auth: ListenerAuth | None = None  # None: local users only

    @property
    def mechanism(self) -> str:
        """The limited handshake of its connections (R168); empty: there is none."""
        if self.tls is not None:
            return TLS
        if self.auth is None or self.auth.mechanism is AuthMechanism.NONE:
            return ""
        mechanism: str = self.auth.mechanism.value
        return mechanism

    def stream(
        self, loop: asyncio.AbstractEventLoop, accepted: socket.socket, carrier: Carrier, turn: Turn
    ) -> ByteStream:
        """Return the stream of a new connection. It uses the certificate of the moment."""
        if self.tls is None:
            return Stream(loop, accepted, carrier, turn)
        return TlsStream(loop, accepted, carrier, self.tls.role, turn)
