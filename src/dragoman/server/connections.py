"""The connections: streams with their carriers, from the handshake to the end.

A stream hands over the messages that its carrier made of the bytes (`arrived`); the connection's session hears each.
Messages to a peer collect until the runner has all that one iteration has for it written at once (`write`). There is
no asyncio here and no socket: the owner of the loop passes in a clock, a way to ask for an iteration, and a way to
dial.
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

NOTICEABLE: Final = 0.1  # so late an iteration, and what peers said meanwhile came late through us
SETTLING: Final = 0.05  # seconds for which a new worker's connection must stay open before it is given a job


class Connections(ConnectionEnds):
    """Opens connections, hands their messages to sessions, and writes the messages of sessions."""

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
        """A stream to a new peer is there. Its carrier may greet; the session hears of it when that is done."""
        owner = None if is_local else self._broker.owners.at(address)
        peer = StreamConnection(session, socket_name, carrier, label, address, self._clock(), limits, owner)
        peer.process = process
        self._enter(peer, stream)
        return peer

    def dialled(
        self, peer: StreamConnection, stream: ByteStream | None, problem: str = "", address: str = "", process: int = 0
    ) -> None:
        """A dial has ended: in a stream to that address, or in a problem."""
        peer.address = address
        peer.process = process
        if stream is not None and not peer.is_lost:
            self._enter(peer, stream)
        elif stream is not None:
            stream.close()
        else:
            self._lose(peer, problem)

    def arrived(self, peer: StreamConnection, messages: Messages) -> None:
        """Bytes came and the carrier made these messages of them."""
        if not self.is_awake:
            self.is_awake = True
            self.wake()
        peer.heard = now = self._clock()
        if now - self.next_run > NOTICEABLE:
            self._broker.resumed_at = now  # what comes now has waited for us
        carrier = peer.carrier
        if not messages or carrier.gap is not None or peer.holding:
            self._shed(self._budget.look_at_unfinished(peer))
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
            self._reports.log_limited("peer refused", peer=peer, reason=failure.reason, detail=failure.detail)
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
        peer = cast(StreamConnection, to)  # every peer that a session knows is one of ours; so below
        if peer.is_lost:
            return
        if tag is not None and peer.closing is not None:
            peer.withheld.append(tag)  # its end is decided: what has not left by now goes to somebody else (D8)
            return
        assert peer.is_open, "a peer that has not greeted yet cannot be told anything: wait for `opened`"
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
        assert self.dialler is not None, "nobody dials for these connections"
        peer = StreamConnection(session, socket_name, carrier, str(place), "", self._clock(), limits or DEFAULT_LIMITS)
        peer.dialled = True
        self.peers[peer] = None
        self.dialler(peer, place)
        return peer

    def call_before_write(self, call: Callable[[float], None]) -> None:
        self._last_words.append(call)
        self.request_iteration()

    def when_settled(self, whose: interface.Connection, call: Callable[[float], object]) -> None:
        """Call back once the connection has stayed open for a moment. Never, if it has ended by then (D7)."""
        if self.later is None:  # there is no loop: no time passes but what the caller lets pass
            call(self._clock())
        else:
            peer = cast(StreamConnection, whose)
            self.later(SETTLING, lambda: self._settle(peer, call))

    # ---------------------------------------------------------------- from the runner

    @property
    def has_work(self) -> bool:
        """Whether there is something to write, to close, or to do at the end of this iteration."""
        return bool(self._dirty or self._last_words)

    def write(self, now: float) -> None:
        """Call those who wait for the end of the iteration, then write and close what is pending."""
        if self._last_words:
            last_words, self._last_words = self._last_words, []
            for call in last_words:
                call(now)
        dirty, self._dirty = self._dirty, []
        for peer in dirty:
            stream = peer.stream
            if stream is None or peer.is_lost:
                if peer.closing is not None:
                    self._lose(peer, peer.closing)
                continue
            if peer.out and peer.write(stream):
                self._shed(self._budget.look_at_backlog(peer))
            if peer.closing is not None:
                self._lose(peer, peer.closing)

    # ---------------------------------------------------------------- a connection, from beginning to end

    def _enter(self, peer: StreamConnection, stream: ByteStream) -> None:
        peer.stream = stream
        self.peers[peer] = None
        if not peer.dialled:  # whom we call does not count among those who came
            self.admission.enter(peer.address)
        peer.heard = peer.since = self._clock()
        self.life_signs.began(peer)
        self._post(peer, peer.carrier.outgoing)
        peer.carrier.outgoing = []
        self.request_iteration()
        if peer.carrier.ready:  # it has no greeting to wait for
            self._open(peer, peer.heard)

    def _open(self, peer: StreamConnection, now: float) -> None:
        peer.is_open = True
        peer.identity = peer.carrier.peer_identity
        self.life_signs.opened(peer, now)
        self._fenced(peer, lambda: peer.session.opened(peer, now))

    def _settle(self, peer: StreamConnection, call: Callable[[float], object]) -> None:
        """Read what has arrived: an end of stream may stand behind it, or alone."""
        if peer.closing is None and peer.stream is not None and peer.stream.read_dry() and not peer.is_doomed():
            self._fenced(peer, lambda: call(self._clock()))
            self.request_iteration()
