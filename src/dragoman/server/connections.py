"""Connections: streams with their carriers, from the handshake to the end.

A stream passes the messages that its carrier decoded to `arrived`, which calls the connection's broker side for each.
Messages to a connection are collected, and the runner writes all of one iteration at once (`write`). There is no
asyncio here and no socket: the owner of the loop passes in a clock, a way to request an iteration, and a way to dial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from dragoman.carriers.carrier import Carrier, Frame, Messages
from dragoman.core.broker import Broker
from dragoman.core.errors import InvariantBroken
from dragoman.core.infinity import inf
from dragoman.core.invariants import check
from dragoman.core.owners import Owner
from dragoman.core.rights import Principal
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.server.admission import AdmissionLimits
from dragoman.server.authentication import Admitted, ListenerAuth, Rejected
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_limits import DEFAULT_LIMITS, ConnectionLimits
from dragoman.server.connection_registry import ConnectionRegistry
from dragoman.server.host_access import HostAccess
from dragoman.server.reports import Reports
from dragoman.streams.byte_stream import ByteStream

LATE: Final = 0.1  # if an iteration is this late, messages that arrived meanwhile were delayed by the broker


class Connections(BrokerIO):
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
            broker.counters, clock, reports, limits, memory, close=self.close, post=self._post
        )
        self.peers = self.registry.peers
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
        principal = admitted.principal if admitted is not None else self._broker.principals.local
        owner = self._owner(principal, is_local, address)
        peer = StreamConnection(session, socket_name, carrier, label, address, self._clock(), owner, limits)
        peer.is_local, peer.process, peer.admitted, peer.auth = is_local, process, admitted, auth
        self._enter(peer, stream)
        return peer

    def arrived(self, peer: StreamConnection, messages: Messages) -> None:
        """Process messages that the carrier decoded from received bytes."""
        if not self.is_awake:
            self.is_awake = True
            self.wake()
        peer.last_received = now = self._clock()
        if now - self.next_run > LATE:
            self._broker.resumed_at = now  # this message has waited for the broker
        carrier = peer.carrier
        if not messages or carrier.gap is not None or peer.holding:
            self.registry.check_partial(peer)
        if carrier.outgoing:
            self._post(peer, carrier.outgoing)
            carrier.outgoing = []
        if not peer.is_open and carrier.ready and peer.closing is None and _is_ready(peer.stream):
            self._open(peer, now)
        if messages and peer.closing is None:
            peer.latest = None
            self._receive(peer, messages, now)
        if carrier.failure is not None and peer.closing is None:
            self.registry.rejected(peer, carrier.failure.reason, carrier.failure.detail)

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
            self._reports.log_limited("handshake aborted", peer=peer, reason=problem)
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

    def close(self, whom: Connection, reason: str) -> None:
        peer = cast(StreamConnection, whom)
        if peer.closing is None:
            peer.closing = reason
            if not peer.out:
                self._dirty.append(peer)
            self.request_iteration()

    def dial(
        self, session: BrokerSide, place: object, socket_name: str, carrier: Carrier, owner: Owner, limits: Any = None
    ) -> StreamConnection:
        return self.host_access.dial(session, place, socket_name, carrier, owner, limits or DEFAULT_LIMITS)

    def call_before_write(self, call: Callable[[float], None]) -> None:
        self._before_write.append(call)
        self.request_iteration()

    def when_settled(self, whose: Connection, call: Callable[[float], object]) -> None:
        self.host_access.when_settled(cast(StreamConnection, whose), call)

    def when_process_ends(self, whose: Connection, call: Callable[[float], None]) -> Callable[[], None] | None:
        return self.host_access.when_process_ends(cast(StreamConnection, whose), call)

    def request_iteration(self) -> None:
        """Request an iteration soon: a broker method was called, or there is something to write."""
        if not self.is_awake:
            self.is_awake = True
            self.wake()

    def bad_message(self, sender: Connection, reason: str, detail: str = "") -> None:
        self.registry.bad_message(cast(StreamConnection, sender), reason, detail)

    def remark(self, event: str, /, *, level: str = "info", peer: Connection | None = None, **fields: object) -> None:
        self._reports.remark(event, level=level, peer=peer, **fields)

    def remark_limited(self, event: str, /, *, peer: Connection, level: str = "info", **fields: object) -> None:
        self._reports.remark_limited(event, level=level, peer=peer, **fields)

    def log_limited(self, event: str, /, *, peer: Connection | None = None, **fields: object) -> None:
        self._reports.log_limited(event, peer=peer, **fields)

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
                self.registry.check_unsent(peer)
            if peer.closing is not None:
                self.registry.lose(peer, peer.closing)

    # ---------------------------------------------------------------- a connection, from beginning to end

    def _enter(self, peer: StreamConnection, stream: ByteStream) -> None:
        peer.stream = stream
        peer.last_received = peer.since = self._clock()
        self.registry.enter(peer)
        self._post(peer, peer.carrier.outgoing)
        peer.carrier.outgoing = []
        self.request_iteration()
        if peer.carrier.ready and stream.is_ready:  # neither its carrier nor its stream has a handshake
            self._open(peer, peer.last_received)

    def _open(self, peer: StreamConnection, now: float) -> None:
        """Find the principal, and notify the broker side. The handshakes are done, so all credentials are known."""
        if peer.auth is not None and peer.stream is not None and peer.admitted is not None:
            found = peer.auth.judge(peer.admitted, peer.stream.peer_certificate, peer.carrier)
            if isinstance(found, Rejected):
                self.registry.turned_away(peer, found.reason, found.detail)
                return
            peer.admitted = found
            if found.principal is not peer.owner.principal:
                peer.change_owner(self._owner(found.principal, peer.is_local, peer.address))
        limit = peer.owner.principal.limits.max_peers
        if limit is not None and peer.owner.principal.peers > limit:
            name = peer.owner.principal.name
            self.registry.turned_away(peer, "too many connections", f"{name} has {limit}, the maximum (max_peers)")
            return
        peer.is_open = True
        self.registry.end_handshake(peer, is_done=True)
        peer.identity = peer.carrier.peer_identity
        self.registry.heartbeats.opened(peer, now)
        self.registry.guarded(peer, lambda: peer.session.opened(peer, now))

    def _owner(self, principal: Principal, is_local: bool, address: str) -> Owner:
        return Owner(principal) if is_local else self._broker.owners.at(address, principal)

    def _post(self, peer: StreamConnection, buffers: Sequence[Frame]) -> None:
        """Queue bytes of the carrier itself: greeting, handshake, PING."""
        if not peer.out and buffers:
            self._dirty.append(peer)
            self.request_iteration()
        peer.out += buffers


def _is_ready(stream: ByteStream | None) -> bool:
    """True if the handshake of TLS is done, if there is one."""
    return stream is not None and stream.is_ready
