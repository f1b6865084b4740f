"""The acceptor: accepts connections on listening sockets."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dragoman.carriers.carrier import Carrier
from dragoman.core.infinity import inf
from dragoman.dialects.interface import BrokerSide
from dragoman.sdk.address import SocketAddress
from dragoman.server import clock
from dragoman.server.authentication import AuthMechanism, ListenerAuth
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.connections import Connections
from dragoman.server.handshakes import TLS
from dragoman.server.local_peers import LocalPeers, LoopbackRule
from dragoman.server.reports import Reports
from dragoman.streams.byte_stream import ByteStream
from dragoman.streams.sockets import describe, is_local, tune
from dragoman.streams.stream import Stream
from dragoman.streams.tls import TlsStream
from dragoman.streams.tls_context import ListenerTls

ACCEPTS_PER_ITERATION = 64
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class ListenerSocket:
    """One socket of a listener: its address, and the broker side and carrier of its connections."""

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


class Acceptor:
    """Accepts connections on any number of sockets, at most `max_accepts_per_second` in a second, and at most
    `max_handshakes` where they begin with a limited handshake."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connections: Connections, reports: Reports, local_peers: LocalPeers
    ) -> None:
        self.accepted = 0  # connections accepted in this second
        self._second = -1
        self._loop = loop
        self._connections = connections
        self._reports = reports
        self._local_peers = local_peers

    def watch(self, listening: socket.socket, listener_socket: ListenerSocket) -> None:
        """Accept connections on this socket until it is removed from the loop."""
        self._loop.add_reader(listening, self._accept, listening, listener_socket)

    def _accept(self, listening: socket.socket, listener_socket: ListenerSocket) -> None:
        mechanism, registry = listener_socket.mechanism, self._connections.registry
        for _ in range(ACCEPTS_PER_ITERATION):
            if mechanism and (seconds := registry.handshakes.wait_time()):
                self._pause_accepting(listening, listener_socket, seconds)
                return
            if listener_socket.is_for_peers and self._has_accepted_enough():
                self._pause_accepting(listening, listener_socket, 1.0 - clock.now() % 1.0)
                return
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in OUT_OF_RESOURCES:
                    raise
                self._reports.remark("accept failed", level="error", problem=str(error))
                self._pause_accepting(listening, listener_socket, 1.0)
                return
            self.accepted += listener_socket.is_for_peers
            try:
                tune(accepted)
                label, address, process = describe(accepted)
                is_local_address = is_local(accepted)
            except OSError:  # it has been closed already
                accepted.close()
                continue
            if registry.admit(address, is_local_address) is not None:
                accepted.close()
                continue
            admitted = self._local_peers.admit(accepted, listener_socket.loopback, label)
            if admitted is None:
                accepted.close()
                continue
            carrier, tls = listener_socket.carrier(), listener_socket.tls
            stream: ByteStream
            if tls is None:
                stream = Stream(self._loop, accepted, carrier)
            else:  # a context that is replaced takes effect with the next connection
                stream = TlsStream(self._loop, accepted, carrier, tls.role)
            peer = self._connections.connected(
                listener_socket.session,
                listener_socket.socket_name,
                carrier,
                stream,
                label,
                address,
                listener_socket.limits,
                is_local_address,
                process,
                admitted,
                listener_socket.auth,
            )
            if mechanism and not peer.is_open and not peer.is_lost:
                registry.begin_handshake(peer, mechanism)
            start(stream, self._connections, peer)

    def _has_accepted_enough(self) -> bool:
        """True if `max_accepts_per_second` is reached. More connections wait in the kernel's queue (R23)."""
        second = int(clock.now())
        if second != self._second:
            self._second, self.accepted = second, 0
        return self.accepted >= self._connections.limits.max_accepts_per_second

    def _pause_accepting(self, listening: socket.socket, listener_socket: ListenerSocket, seconds: float) -> None:
        """Stop accepting for a while; inf: until a handshake has ended. Existing connections are not affected."""
        self._loop.remove_reader(listening)

        def again() -> None:
            if listening.fileno() >= 0:
                self.watch(listening, listener_socket)

        if seconds == inf:
            self._connections.registry.handshakes.when_one_ends(again)
        else:
            self._loop.call_later(seconds, again)


def start(stream: ByteStream, connections: Connections, peer: StreamConnection) -> None:
    """Start reading from a connection."""
    stream.start(partial(connections.arrived, peer), partial(connections.ended, peer))
