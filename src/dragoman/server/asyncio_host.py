"""The asyncio side of the runner: listeners, accepted and dialled sockets, and the timer of the next iteration."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from dragoman.sdk.address import SocketAddress, TcpAddress, TlsAddress, UnixAddress
from dragoman.server import clock
from dragoman.server.acceptor import Acceptor
from dragoman.server.authentication import Authentication
from dragoman.server.connection import StreamConnection
from dragoman.server.dial_policy import SELF_DIALLED, OwnSockets
from dragoman.server.input_taps import NO_TAPS, InputTaps
from dragoman.server.listener_socket import ListenerSocket
from dragoman.server.local_peers import DEFAULT_ACCESS, LocalAccess, LocalPeers, LoopbackRule
from dragoman.server.processes import Processes, max_watched
from dragoman.server.runner import Runner
from dragoman.streams.byte_stream import ByteStream
from dragoman.streams.dial import connect, look_up
from dragoman.streams.sockets import describe, forget_unix, listen_tcp, listen_unix, which_file
from dragoman.streams.stream import Stream
from dragoman.streams.tls import TlsStream
from dragoman.streams.tls_context import TlsFileError, TlsRole, client_role

DIAL_TIMEOUT = 1.0
SUSPEND_CHECK = 1.0  # seconds between checks for a suspend of the machine


@dataclass(frozen=True, slots=True)
class ExternalSocket:
    """A listening socket on which another component accepts, and applies the rule for local users."""

    place: SocketAddress
    serve: Callable[[socket.socket, LocalPeers, LoopbackRule], None]


class AsyncioHost:
    """Owns the sockets and the timer of the event loop; calls the runner."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runner: Runner,
        now: Callable[[], float] = clock.now,
        authentication: Authentication | None = None,
        taps: InputTaps = NO_TAPS,
    ) -> None:
        self._loop = loop
        self._now = now
        self._runner = runner
        self._listening: list[tuple[socket.socket, SocketAddress, tuple[int, int] | None]] = []
        self._served: list[tuple[socket.socket, SocketAddress, tuple[int, int] | None]] = []  # of ExternalSocket
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._dials: set[asyncio.Task[None]] = set()
        self._suspended = clock.suspended()
        self._connections = connections = runner.connections
        self._own_sockets = OwnSockets()
        self._local_peers = LocalPeers(
            runner.reports,
            runner.broker.counters,
            now,
            authentication or Authentication(runner.broker.principals),
            self._own_sockets,
        )
        self.acceptor = Acceptor(loop, taps.connections(connections), runner.reports, self._local_peers)
        connections.wake = self._wake
        connections.host_access.dialler = taps.dialler(self._dial)
        self._processes = Processes(loop, max_watched(connections.limits.max_connections))
        connections.host_access.process_watch = taps.process_watch(self._processes.watch)
        connections.host_access.later = taps.later(loop.call_later)
        self._iterate = taps.run_once(runner.run_once)
        self._dialled = taps.dialled(connections.host_access.dialled)
        self._handle_pause = taps.handle_pause(connections.registry.handle_pause)

    def start(self) -> None:
        self._wake()
        self._check_suspend()

    def listen(
        self, listener_socket: ListenerSocket | ExternalSocket, access: LocalAccess = DEFAULT_ACCESS
    ) -> SocketAddress:
        """Open a listening socket. Returns its address, with the actual port if port 0 was requested."""
        place = listener_socket.place
        file = None
        if isinstance(place, TcpAddress):
            listening = listen_tcp(place.host, place.port)
            place = replace(place, port=listening.getsockname()[1])
        else:
            listening = listen_unix(place.path, access.mode, access.group)
            file = which_file(place.path)
        sockets = self._served if isinstance(listener_socket, ExternalSocket) else self._listening
        sockets.append((listening, place, file))
        self._own_sockets.listens(listening)
        try:
            rule = self._local_peers.rule_of(listening, place, access)
        except OSError:
            self.close_listener(place)
            raise
        if isinstance(listener_socket, ExternalSocket):
            listener_socket.serve(listening, self._local_peers, rule)
        else:
            self.acceptor.watch(listening, replace(listener_socket, loopback=rule))
        return place

    def close(self) -> None:
        """Stop listening and dialling, and end every connection."""
        self.stop_listening()
        for served in self._served:
            self._stop_listening(*served)
        self._served.clear()
        for task in list(self._dials):
            task.cancel()
        for peer in list(self._connections.peers):
            if peer.stream is not None:
                peer.stream.close()
        self._processes.close()
        self._local_peers.close()
        if self._timer is not None:
            self._timer.cancel()

    def close_listener(self, at: SocketAddress) -> None:
        """Stop listening at this address."""
        for sockets in (self._listening, self._served):
            for each in [each for each in sockets if each[1] == at]:
                self._stop_listening(*each)
                sockets.remove(each)

    def stop_listening(self) -> None:
        """Stop listening, except on external sockets."""
        for listening in self._listening:
            self._stop_listening(*listening)
        self._listening.clear()

    def _stop_listening(self, listening: socket.socket, place: SocketAddress, file: tuple[int, int] | None) -> None:
        if listening.fileno() >= 0:  # otherwise its external server has closed it
            self._loop.remove_reader(listening)
        if isinstance(place, UnixAddress):
            with suppress(OSError):  # its folder has been removed, or is not accessible
                forget_unix(place.path, file)
        listening.close()

    # ---------------------------------------------------------------- iterations

    def _wake(self) -> None:
        self._loop.call_soon(self._run_once)

    def _run_once(self) -> None:
        turn = self._connections.turn
        if turn.has_waiting:
            turn.end()
        due = self._iterate()
        if turn.has_waiting:
            turn.begin()
            self._connections.request_iteration()
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_later(max(0.0, due - self._now()), self._timed_iteration)

    def _timed_iteration(self) -> None:
        self._timer = None
        self._run_once()

    def _check_suspend(self) -> None:
        suspended = clock.suspended()
        if suspended - self._suspended > 1.0:
            self._handle_pause(self._runner.broker, suspended - self._suspended)
        self._suspended = suspended
        self._loop.call_later(SUSPEND_CHECK, self._check_suspend)

    # ---------------------------------------------------------------- dials

    def _dial(self, peer: StreamConnection, place: object) -> None:
        assert isinstance(place, TcpAddress | UnixAddress)
        if isinstance(place, UnixAddress):
            self._loop.call_soon(self._connect_unix, peer, place)
        else:
            self._connect_later(peer, place)

    def _connect_unix(self, peer: StreamConnection, place: UnixAddress) -> None:
        """Connect to a Unix socket. It succeeds or fails at once, unless the queue of the listener is full."""
        if self._own_sockets.listens_at(place):
            self._reject_dial(peer, place)
            return
        try:
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # no file descriptors are left
            self._not_connected(peer, place, error)
            return
        connected.setblocking(False)
        try:
            connected.connect(place.path)
        except BlockingIOError:
            connected.close()
            self._connect_later(peer, place)
        except OSError as error:
            connected.close()
            self._not_connected(peer, place, error)
        else:
            self._connected(peer, place, connected)

    def _connect_later(self, peer: StreamConnection, place: SocketAddress) -> None:
        task = self._loop.create_task(self._connect(peer, place))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    async def _connect(self, peer: StreamConnection, place: SocketAddress) -> None:
        try:
            role = client_role(place.tls, place.host) if isinstance(place, TlsAddress) else None
            where = place
            if isinstance(place, TcpAddress):
                where = TcpAddress(await look_up(self._loop, place.host, DIAL_TIMEOUT), place.port)
            if self._own_sockets.listens_at(where):
                self._reject_dial(peer, place)
                return
            connected = await connect(self._loop, where, DIAL_TIMEOUT, self._own_sockets.dials)
        except (OSError, TlsFileError) as error:
            self._not_connected(peer, place, error)
        else:
            self._connected(peer, place, connected, role)

    def _reject_dial(self, peer: StreamConnection, place: SocketAddress) -> None:
        self._runner.reports.log_limited("dial rejected", worker=str(place), reason=SELF_DIALLED)
        self._dialled(peer, None, f"cannot connect to {place}: {SELF_DIALLED}")
        self._wake()

    def _not_connected(self, peer: StreamConnection, place: SocketAddress, error: OSError | TlsFileError) -> None:
        self._dialled(peer, None, f"cannot connect to {place}: {error}")
        self._wake()

    def _connected(
        self, peer: StreamConnection, place: SocketAddress, connected: socket.socket, role: TlsRole | None = None
    ) -> None:
        if self._own_sockets.is_own_listener(connected):
            connected.close()
            self._reject_dial(peer, place)
            return
        self._own_sockets.connected(connected)
        stream: ByteStream
        if role is None:
            stream = Stream(self._loop, connected, peer.carrier, self._connections.turn)
        else:
            stream = TlsStream(self._loop, connected, peer.carrier, role, self._connections.turn)
        _, address, process = describe(connected)
        self._dialled(peer, stream, address=address, process=process)
        if not peer.is_lost:
            self._connections.start(peer)
