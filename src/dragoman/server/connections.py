"""Connections: streams with their carriers, from the handshake to the end.

A stream passes the messages that its carrier decoded to `arrived`, which calls the connection's broker side for each.
Messages to a connection are collected, and the runner writes all of one iteration at once (`write`). There is no
asyncio here and no socket: the owner of the loop passes in a clock, a way to request an iteration, and a way to dial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from dragoman.carriers.carrier import Carrier, Frame, Messages
from dragoman.core.errors import InvariantBroken
from dragoman.core.invariants import check
from dragoman.dialects import interface
from dragoman.dialects.interface import BrokerSide
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_ends import ConnectionEnds
from dragoman.server.connection_limits import DEFAULT_LIMITS, ConnectionLimits
from dragoman.streams.byte_stream import ByteStream

LATE: Final = 0.1  # if an iteration is this late, messages that arrived meanwhile were delayed by the broker
SETTLING: Final = 0.05  # seconds for which a new worker's connection must stay open before the worker gets a job


class Connections(ConnectionEnds):
    """Opens connections, passes their messages to broker sides, and writes the messages of broker sides."""

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
    ) -> StreamConnection:
        """Add a new stream. Its carrier may start a handshake; the broker side is notified when that is done."""
        owner = None if is_local else self._broker.owners.at(address)
        peer = StreamConnection(session, socket_name, carrier, label, address, self._clock(), limits, owner)
        peer.process = process
        self._enter(peer, stream)
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
            self._lose(peer, problem)

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
            self._close_over_budget(self._budget.check_partial(peer))
        if carrier.outgoing:
            self._post(peer, carrier.outgoing)
            carrier.outgoing = []
        if not peer.is_open and carrier.ready:
            self._open(peer, now)
        if messages and peer.closing is None:
            peer.latest = None
            self._receive(peer, messages, now)
        if carrier.failure is not None and peer.closing is None:
            failure = carrier.failure
            self._count_bad(peer, failure.reason)
            self._reports.log_limited("connection rejected", peer=peer, reason=failure.reason, detail=failure.detail)
            self.close(peer, f"{failure.reason}: {failure.detail}")

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
            self._crashed(peer, error, messages)

    # ---------------------------------------------------------------- from sessions

    def send(self, to: interface.Connection, frames: Sequence[Frame], tag: object = None) -> None:
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

    def dial(
        self,
        session: BrokerSide,
        place: object,
        socket_name: str,
        carrier: Carrier,
        limits: ConnectionLimits | None = None,
    ) -> StreamConnection:
        assert self.dialler is not None, "these connections have no dialler"
        peer = StreamConnection(session, socket_name, carrier, str(place), "", self._clock(), limits or DEFAULT_LIMITS)
        peer.dialled = True
        self.peers[peer] = None
        self.dialler(peer, place)
        return peer

    def call_before_write(self, call: Callable[[float], None]) -> None:
        self._before_write.append(call)
        self.request_iteration()

    def when_settled(self, whose: interface.Connection, call: Callable[[float], object]) -> None:
        """Call back once the connection has stayed open for `SETTLING` seconds. Not called if it ends before (D7)."""
        if self.later is None:  # there is no loop: time passes only as the caller decides
            call(self._clock())
        else:
            peer = cast(StreamConnection, whose)
            self.later(SETTLING, lambda: self._settle(peer, call))

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
                    self._lose(peer, peer.closing)
                continue
            if peer.out and peer.write(stream):
                self._close_over_budget(self._budget.check_unsent(peer))
            if peer.closing is not None:
                self._lose(peer, peer.closing)

    # ---------------------------------------------------------------- a connection, from beginning to end

    def _enter(self, peer: StreamConnection, stream: ByteStream) -> None:
        peer.stream = stream
        self.peers[peer] = None
        if not peer.dialled:  # dialled connections do not count towards the limits
            self.admission.enter(peer.address)
        peer.last_received = peer.since = self._clock()
        self.heartbeats.began(peer)
        self._post(peer, peer.carrier.outgoing)
        peer.carrier.outgoing = []
        self.request_iteration()
        if peer.carrier.ready:  # its carrier has no handshake
            self._open(peer, peer.last_received)

    def _open(self, peer: StreamConnection, now: float) -> None:
        peer.is_open = True
        peer.identity = peer.carrier.peer_identity
        self.heartbeats.opened(peer, now)
        self._guarded(peer, lambda: peer.session.opened(peer, now))

    def _settle(self, peer: StreamConnection, call: Callable[[float], object]) -> None:
        """Read what has arrived, because the end of the stream may follow it."""
        if peer.closing is None and peer.stream is not None and peer.stream.read_dry() and not peer.is_closing():
            self._guarded(peer, lambda: call(self._clock()))
            self.request_iteration()
