"""Connections: streams with their carriers, from the handshake to the end.

A stream passes the messages that its carrier decoded to `arrived`, which calls the connection's broker side for each.
Messages to a connection are collected, and the runner writes all of one iteration at once (`write`). There is no
asyncio here and no socket: the owner of the loop passes in a clock, a way to request an iteration, and a way to dial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from dragoman.carriers.carrier import Carrier, Frame, Messages, size_of
from dragoman.core.broker import Broker
from dragoman.core.dispatch import LOW
from dragoman.core.errors import InvariantBroken
from dragoman.core.infinity import inf
from dragoman.core.invariants import check
from dragoman.dialects.interface import BrokerSide, Connection
from dragoman.server.admission import AdmissionLimits
from dragoman.server.authentication import Admitted, ListenerAuth
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_limits import DEFAULT_LIMITS, ConnectionLimits
from dragoman.server.connection_registry import ConnectionRegistry
from dragoman.server.host_access import HostAccess
from dragoman.server.identification import Identification
from dragoman.server.reports import Reports
from dragoman.server.side_calls import SideCalls
from dragoman.streams.byte_stream import ByteStream
from dragoman.streams.turn import SECONDS, Turn

LATE: Final = 0.1  # if an iteration is this late, messages that arrived meanwhile were delayed by the broker


class Connections(SideCalls):
    """Opens connections, passes their messages to broker sides, and writes the messages of broker sides."""

    def __init__(
        self,
        broker: Broker,
        clock: Callable[[], float],
        reports: Reports,
        limits: AdmissionLimits,
        *,
        wake: Callable[[], None],
        dialler: Callable[[StreamConnection, object], None] | None,
        later: Callable[[float, Callable[[], None]], object] | None,
        strict: bool,
    ) -> None:
        self.limits = limits
        self.turn = Turn()  # of the streams
        self.wake = wake  # requests an iteration from the owner of the loop
        self.is_awake = False  # an iteration is running or requested
        self.next_run = inf  # latest time for the next iteration
        self._broker = broker
        self._clock = clock
        self._reports = reports
        self._strict = strict
        self._before_write: list[Callable[[float], None]] = []  # calls to make before the next write
        self._dirty: list[StreamConnection] = []  # connections with something to write or to close
        memory = broker.job_registry.memory
        self.registry = ConnectionRegistry(
            broker, clock, reports, limits, memory, close=self.close, post=self._post, read_all=self._read_all
        )
        self.peers = self.registry.peers
        self._identification = Identification(broker, self.registry)
        self.host_access = HostAccess(
            self.registry, clock, dialler, later, enter=self._enter, request_iteration=self.request_iteration
        )

    # ---------------------------------------------------------------- from streams

    def connected(
        self,
        session: BrokerSide,
        socket_name: str,
        carrier: Carrier,
        stream: ByteStream,
        label: str,
        address: str,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        is_local: bool = True,
        process: int = 0,
        admitted: Admitted | None = None,
        auth: ListenerAuth | None = None,
    ) -> StreamConnection:
        """Add a new stream. Its carrier may start a handshake; the broker side is notified when that is done.

        `admitted`: the local user that connects; None: the broker's own. `auth` asks for other credentials.
        """
        owner = self._identification.first_owner(admitted, is_local, address)
        peer = StreamConnection(session, socket_name, carrier, label, address, self._clock(), owner, limits)
        peer.is_local, peer.process, peer.admitted, peer.auth = is_local, process, admitted, auth
        self._enter(peer, stream)
        return peer

    def start(self, peer: StreamConnection) -> None:
        """Start reading from a connection."""
        if peer.stream is not None:
            peer.stream.start(partial(self.arrived, peer), partial(self.ended, peer))

    def arrived(self, peer: StreamConnection, messages: Messages) -> None:
        """Process messages that the carrier decoded from received bytes."""
        if not self.is_awake:
            self.is_awake = True
            self.wake()
        peer.last_received = now = self._clock()
        turn = self.turn
        if now >= turn.ends:
            if turn.ends < 0.0:
                turn.ends = now + SECONDS
            else:
                turn.is_over = True
        if now - self.next_run > LATE:
            self._broker.resumed_at = now  # this message has waited for the broker
        carrier = peer.carrier
        if not messages or carrier.gap is not None or carrier.rest or peer.holding:
            self.registry.check_partial(peer)
        if carrier.outgoing:
            self._identification.send_outgoing(peer)
        if not peer.is_open and peer.is_ready():
            self._open(peer, now)
        if messages and peer.closing is None:
            peer.latest = None
            self._receive(peer, messages, now)
        if carrier.rest and self._clock() >= turn.ends:
            turn.is_over = True
        if carrier.failure is not None and peer.closing is None:
            self.registry.rejected(peer, carrier.failure)

    def _receive(self, peer: StreamConnection, messages: Messages, now: float) -> None:
        session, is_strict = peer.session, self._strict
        try:
            for message in messages:
                session.receive(peer, message, now)
                if is_strict:
                    check(self._broker)
                if peer.closing is not None:
                    break
        except InvariantBroken:
            raise
        except Exception as error:
            self.registry.crashed(peer, error, messages)

    def ended(self, peer: StreamConnection, problem: str) -> None:
        """Handle the end of a stream, or an error on it."""
        if not peer.is_open and not peer.is_lost and peer.last_received > peer.since:  # a port scan is not logged
            self.registry.handshake_aborted(peer, problem)
        self.registry.lose(peer, problem)
        self.request_iteration()

    # ---------------------------------------------------------------- from sessions

    def send(self, to: Connection, frames: Sequence[Frame], tag: object = None) -> None:
        peer = cast(StreamConnection, to)  # every connection that a broker side knows is a StreamConnection; so below
        if peer.is_lost:
            return
        if tag is not None and peer.closing is not None:
            peer.unsendable.append(tag)  # it is being closed: the job goes to another worker (D8)
            return
        assert peer.is_open, "no message can be sent before the handshake is done: wait for `opened`"
        out = peer.out
        if not out:
            self._dirty.append(peer)
            if not self.is_awake:
                self.request_iteration()
        out += peer.carrier.encode(frames)
        if tag is not None:
            peer.fresh_tags.append((len(out), tag))

    def unsent(self, whom: Connection) -> int:
        peer = cast(StreamConnection, whom)
        stream = peer.stream
        if stream is None or peer.is_lost:
            return 0
        if stream.backlog > LOW:
            stream.when_low(LOW, self.request_iteration)
        return stream.backlog + size_of(peer.out)

    def close(self, whom: Connection, reason: str) -> None:
        peer = cast(StreamConnection, whom)
        if peer.closing is None:
            peer.closing = reason
            if not peer.out:
                self._dirty.append(peer)
            self.request_iteration()

    def call_before_write(self, call: Callable[[float], None]) -> None:
        self._before_write.append(call)
        self.request_iteration()

    def request_iteration(self) -> None:
        """Request an iteration soon: a broker method was called, or there is something to write."""
        if not self.is_awake:
            self.is_awake = True
            self.wake()

    # ---------------------------------------------------------------- from the runner

    @property
    def has_work(self) -> bool:
        """True if there is something to write, to close, or to call before writing."""
        return bool(self._dirty or self._before_write)

    def write(self, now: float) -> None:
        """Make the requested calls, then write and close what is pending."""
        if self._before_write:
            calls, self._before_write = self._before_write, []
            for call in calls:
                call(now)
        dirty, self._dirty = self._dirty, []
        for peer in dirty:
            stream = peer.stream
            if stream is None or peer.is_lost:
                if peer.closing is not None:
                    self.registry.lose(peer, peer.closing)
                continue
            if peer.out and peer.write(stream):
                self.registry.check_unsent(peer, now)
                if peer in self.registry.budget.over:
                    stream.when_low(peer.limits.max_send_buffer, self.request_iteration)
            if peer.closing is not None:
                self.registry.lose(peer, peer.closing)

    def _read_all(self, until: float) -> None:
        """Read what has arrived on every connection, at most until this time."""
        turn, left = self.turn, list(self.peers)
        while left:
            behind: list[StreamConnection] = []
            for peer in left:
                if peer.stream is None or peer.is_lost:
                    continue
                peer.stream.read_dry()
                if peer.stream.is_queued:
                    behind.append(peer)
                if self._clock() > until:
                    return
            turn.read_on(until)
            left = [] if turn.is_over else behind

    # ---------------------------------------------------------------- a connection, from beginning to end

    def _enter(self, peer: StreamConnection, stream: ByteStream) -> None:
        peer.stream = stream
        peer.last_received = peer.since = self._clock()
        self.registry.enter(peer)
        peer.is_held = not stream.is_ready
        self._identification.send_outgoing(peer)
        self.request_iteration()
        if peer.is_ready():  # neither its carrier nor its stream has a handshake
            self._open(peer, peer.last_received)

    def _open(self, peer: StreamConnection, now: float) -> None:
        """Find the principal, and notify the broker side. The handshakes are done, so all credentials are known."""
        if not self._identification.identify(peer):
            return
        peer.is_open = True
        self.registry.end_handshake(peer, is_done=True)
        peer.identity = peer.carrier.peer_identity
        self.registry.heartbeats.opened(peer, now)
        self.registry.guarded(peer, lambda: peer.session.opened(peer, now))

    def _post(self, peer: StreamConnection, buffers: Sequence[Frame]) -> None:
        """Queue bytes of the carrier itself: greeting, handshake, PING."""
        if not peer.out and buffers:
            self._dirty.append(peer)
            self.request_iteration()
        peer.out += buffers
