"""The asyncio side of the line: listeners, accepted and dialled sockets, and when the next turn is due."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from dragoman.sdk.address import SocketAddress, TcpAddress, UnixAddress
from dragoman.server import clock
from dragoman.server.acceptor import Acceptor, ListenerSocket, start
from dragoman.server.connection import StreamConnection
from dragoman.server.processes import Processes, most_watched
from dragoman.server.runner import Runner
from dragoman.streams.dial import connect
from dragoman.streams.sockets import describe, forget_unix, listen_tcp, listen_unix, which_file
from dragoman.streams.stream import Stream

DIAL_TIMEOUT = 1.0
SUSPEND_LOOK = 1.0  # how often we look whether the machine slept


@dataclass(frozen=True, slots=True)
class ExternalSocket:
    """A place where somebody else accepts: the listening socket is theirs."""

    place: SocketAddress
    serve: Callable[[socket.socket], None]


class AsyncioHost:
    def __init__(self, loop: asyncio.AbstractEventLoop, runner: Runner, now: Callable[[], float] = clock.now) -> None:
        self._loop = loop
        self._now = now
        self._runner = runner
        self._listening: list[tuple[socket.socket, SocketAddress, tuple[int, int] | None]] = []
        self._served: list[
            tuple[socket.socket, SocketAddress, tuple[int, int] | None]
        ] = []  # where somebody else accepts
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._dials: set[asyncio.Task[None]] = set()
        self._suspended = clock.suspended()
        self._connections = connections = runner.connections
        self.acceptor = Acceptor(loop, connections, runner.reports)
        connections.wake = self._wake
        connections.dialler = self._dial
        self._processes = Processes(loop, most_watched(connections.limits.max_connections))
        connections.process_watch = self._processes.watch
        connections.later = loop.call_later

    def start(self) -> None:
        self._wake()
        self._look_for_suspend()

    def listen(self, listener_socket: ListenerSocket | ExternalSocket) -> SocketAddress:
        """Open a door. Returns where it really is, which tells the port when 0 was asked for."""
        place = listener_socket.place
        file = None
        if isinstance(place, TcpAddress):
            listening = listen_tcp(place.host, place.port)
            place = TcpAddress(place.host, listening.getsockname()[1])
        else:
            listening = listen_unix(place.path)
            file = which_file(place.path)
        if isinstance(listener_socket, ExternalSocket):
            self._served.append((listening, place, file))
            listener_socket.serve(listening)
        else:
            self._listening.append((listening, place, file))
            self.acceptor.watch(listening, listener_socket)
        return place

    def close(self) -> None:
        """Stop listening and dialling, end every connection."""
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
        if self._timer is not None:
            self._timer.cancel()

    def close_listener(self, at: SocketAddress) -> None:
        """Let nobody in there any more."""
        for sockets in (self._listening, self._served):
            for each in [each for each in sockets if each[1] == at]:
                self._stop_listening(*each)
                sockets.remove(each)

    def stop_listening(self) -> None:
        """Let nobody in any more, except where somebody else accepts."""
        for listening in self._listening:
            self._stop_listening(*listening)
        self._listening.clear()

    def _stop_listening(self, listening: socket.socket, place: SocketAddress, file: tuple[int, int] | None) -> None:
        if listening.fileno() >= 0:  # else whoever served there has closed it
            self._loop.remove_reader(listening)
        if isinstance(place, UnixAddress):
            with suppress(OSError):  # its folder has gone, or is not ours any more
                forget_unix(place.path, file)
        listening.close()

    # ---------------------------------------------------------------- turns

    def _wake(self) -> None:
        self._loop.call_soon(self._run_once)

    def _run_once(self) -> None:
        due = self._runner.run_once()
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_later(max(0.0, due - self._now()), self._timed_iteration)

    def _timed_iteration(self) -> None:
        self._timer = None
        self._run_once()

    def _look_for_suspend(self) -> None:
        suspended = clock.suspended()
        if suspended - self._suspended > 1.0:
            self._runner.excuse(suspended - self._suspended)
        self._suspended = suspended
        self._loop.call_later(SUSPEND_LOOK, self._look_for_suspend)

    # ---------------------------------------------------------------- peers

    def _dial(self, peer: StreamConnection, place: object) -> None:
        assert isinstance(place, TcpAddress | UnixAddress)
        if isinstance(place, UnixAddress):
            self._loop.call_soon(self._connect_near, peer, place)
        else:
            self._connect_later(peer, place)

    def _connect_near(self, peer: StreamConnection, place: UnixAddress) -> None:
        """On this machine a connection stands at once or not at all, unless there is a queue at the other end."""
        try:
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # no descriptors are left
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
            self._connected(peer, connected)

    def _connect_later(self, peer: StreamConnection, place: SocketAddress) -> None:
        task = self._loop.create_task(self._connect(peer, place))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    async def _connect(self, peer: StreamConnection, place: SocketAddress) -> None:
        try:
            connected = await connect(self._loop, place, DIAL_TIMEOUT)
        except OSError as error:
            self._not_connected(peer, place, error)
        else:
            self._connected(peer, connected)

    def _not_connected(self, peer: StreamConnection, place: SocketAddress, error: OSError) -> None:
        self._connections.dialled(peer, None, f"cannot connect to {place}: {error}")
        self._wake()

    def _connected(self, peer: StreamConnection, connected: socket.socket) -> None:
        stream = Stream(self._loop, connected, peer.carrier)
        _, address, process = describe(connected)
        self._connections.dialled(peer, stream, address=address, process=process)
        if not peer.is_lost:
            start(stream, self._connections, peer)
