"""The acceptor: accepts connections on listening sockets."""

from __future__ import annotations

import asyncio
import socket

from dragoman.server import clock
from dragoman.server.connections import Connections
from dragoman.server.listener_socket import ListenerSocket
from dragoman.server.local_peers import SHORTAGES, LocalPeers
from dragoman.server.reports import Reports
from dragoman.streams.sockets import describe, is_local, tune

ACCEPTS_PER_ITERATION = 64


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
                self._pause_accepting(listening, listener_socket, seconds, is_full=registry.handshakes.is_full)
                return
            if listener_socket.is_for_peers and self._has_accepted_enough():
                self._pause_accepting(listening, listener_socket, 1.0 - clock.now() % 1.0)
                return
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                self._reports.remark("accept failed", level="error", problem=str(error))
                self._pause_accepting(listening, listener_socket, 1.0)
                return
            self.accepted += listener_socket.is_for_peers
            try:
                tune(accepted)
                label, address, process = describe(accepted)
                is_here = is_local(accepted)
            except OSError:  # it has been closed already
                accepted.close()
                continue
            if mechanism and not registry.handshakes.admits(mechanism, address):
                accepted.close()
                continue
            admitted = self._local_peers.admit(accepted, listener_socket.loopback, label)
            if admitted is None or registry.admit(
                address, is_here, admitted.principal if is_here else None, proves_more=bool(mechanism)
            ):
                accepted.close()
                continue
            carrier = listener_socket.carrier()
            stream = listener_socket.stream(self._loop, accepted, carrier, self._connections.turn)
            peer = self._connections.connected(
                listener_socket.session,
                listener_socket.socket_name,
                carrier,
                stream,
                label,
                address,
                listener_socket.limits,
                is_here,
                process,
                admitted,
                listener_socket.auth,
            )
            if mechanism and not peer.is_open and not peer.is_lost:
                registry.begin_handshake(peer, mechanism)
            self._connections.start(peer)

    def _has_accepted_enough(self) -> bool:
        """True if `max_accepts_per_second` is reached. More connections wait in the kernel's queue (R23)."""
        second = int(clock.now())
        if second != self._second:
            self._second, self.accepted = second, 0
        return self.accepted >= self._connections.limits.max_accepts_per_second

    def _pause_accepting(
        self, listening: socket.socket, listener_socket: ListenerSocket, seconds: float, *, is_full: bool = False
    ) -> None:
        """Stop accepting for a while, or until a handshake has ended, if they are full. Existing connections are not
        affected."""
        self._loop.remove_reader(listening)

        def again() -> None:
            timer.cancel()
            if listening.fileno() >= 0:
                self.watch(listening, listener_socket)

        timer = self._loop.call_later(seconds, again)
        if is_full:
            self._connections.registry.handshakes.when_one_ends(again)
