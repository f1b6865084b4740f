"""Access to the host for broker sides: dials, pauses and ends of processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from dragoman.carriers.carrier import Carrier
from dragoman.core.owners import Owner
from dragoman.dialects.interface import BrokerSide
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_limits import ConnectionLimits
from dragoman.server.connection_registry import ConnectionRegistry
from dragoman.streams.byte_stream import ByteStream

SETTLING: Final = 0.05  # seconds for which a new worker's connection must stay open before the worker gets a job

# Calls back once when the process with this id has ended. Returns a function that stops the watch, or None if the
# process cannot be watched.
ProcessWatch = Callable[[int, Callable[[], None]], Callable[[], None] | None]


class HostAccess:
    """Requests of broker sides that the owner of the loop executes, and their ends.

    `enter` adds a connection that has got its stream.
    """

    def __init__(
        self,
        registry: ConnectionRegistry,
        clock: Callable[[], float],
        dialler: Callable[[StreamConnection, object], None] | None,
        later: Callable[[float, Callable[[], None]], object] | None,
        *,
        enter: Callable[[StreamConnection, ByteStream], None],
        request_iteration: Callable[[], None],
    ) -> None:
        self.dialler = dialler
        self.later = later  # calls back after this many seconds of real time
        self.process_watch: ProcessWatch | None = None
        self._registry = registry
        self._clock = clock
        self._enter = enter
        self._request_iteration = request_iteration

    def dial(
        self,
        session: BrokerSide,
        place: object,
        socket_name: str,
        carrier: Carrier,
        owner: Owner,
        limits: ConnectionLimits,
    ) -> StreamConnection:
        """Connect to an address. `dialled` follows."""
        assert self.dialler is not None, "these connections have no dialler"
        peer = StreamConnection(session, socket_name, carrier, str(place), "", self._clock(), owner, limits)
        problem = self._registry.dial(peer)
        if problem is None or self.later is None:
            self.dialler(peer, place)
        else:
            self.later(0.0, partial(self.dialled, peer, None, problem))
        return peer

    def dialled(
        self, peer: StreamConnection, stream: ByteStream | None, problem: str = "", address: str = "", process: int = 0
    ) -> None:
        """Handle the end of a dial: a stream to that address, or a problem."""
        peer.address = address
        peer.process = process
        if stream is not None and not peer.is_lost:
            self._enter(peer, stream)
        elif stream is not None:
            stream.close()
        else:
            self._registry.lose(peer, problem)

    def when_settled(self, peer: StreamConnection, call: Callable[[float], object]) -> None:
        """Call back once the connection has stayed open for `SETTLING` seconds. Not called if it ends before (D7)."""
        if self.later is None:  # there is no loop: time passes only as the caller decides
            call(self._clock())
        else:
            self.later(SETTLING, lambda: self._settle(peer, call))

    def _settle(self, peer: StreamConnection, call: Callable[[float], object]) -> None:
        """Read what has arrived, because the end of the stream may follow it."""
        if peer.closing is None and peer.stream is not None and peer.stream.read_dry() and not peer.is_closing():
            self._call(peer, call)

    def when_process_ends(self, peer: StreamConnection, call: Callable[[float], None]) -> Callable[[], None] | None:
        """Call back once when the process of this connection has ended. None: it cannot be watched."""
        if self.process_watch is None or not peer.process:
            return None
        return self.process_watch(peer.process, lambda: self._call(peer, call))

    def _call(self, peer: StreamConnection, call: Callable[[float], object]) -> None:
        self._registry.guarded(peer, lambda: call(self._clock()))
        self._request_iteration()
