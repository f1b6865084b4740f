"""The ends of connections: bad messages, silence, faults, and what is told and counted then.

A connection ends because its stream does (`ended`), because a session wants it closed, or because its peer is silent,
costs too much or sends bad messages. Whatever the cause, `_lose` tells its session once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from dragoman.carriers.carrier import Frame, Messages
from dragoman.core.broker import Broker
from dragoman.core.errors import InvariantBroken
from dragoman.core.infinity import inf
from dragoman.dialects import interface
from dragoman.server.admission import Admission, AdmissionLimits
from dragoman.server.connection import StreamConnection
from dragoman.server.heartbeats import ASK, NO_HANDSHAKE, SILENT, Heartbeats
from dragoman.server.memory_budget import MemoryBudget, Verdict
from dragoman.server.reports import Reports
from dragoman.streams.byte_stream import ByteStream

# Calls back once when the process with this id has ended. Returns a function that stops watching it, or None if the
# process cannot be watched.
ProcessWatch = Callable[[int, Callable[[], None]], Callable[[], None] | None]


class ConnectionEnds(interface.BrokerIO):
    """The state of all connections, and the ways in which they end."""

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
        self.admission = Admission(limits)
        self.life_signs = Heartbeats()
        self.peers: dict[StreamConnection, None] = {}
        self.wake = wake  # asks the owner of the loop for an iteration soon
        self.is_awake = False  # an iteration runs, or is asked for
        self.next_run = inf  # when the next iteration should start at the latest
        self.dialler = dialler
        self.process_watch: ProcessWatch | None = None
        self.later = later  # asks the owner of the loop for a call after so many seconds of real time
        self.traffic: dict[str, tuple[int, int]] = {}  # by dialect: bytes received and sent by peers that have gone
        self._broker = broker
        self._clock = clock
        self._reports = reports
        self._strict = strict
        self._last_words: list[Callable[[float], None]] = []  # calls that sessions want at the end of this iteration
        self._dirty: list[StreamConnection] = []  # peers with something to write, to close or to greet
        self._budget = MemoryBudget(limits.max_memory)

    # ---------------------------------------------------------------- from streams

    def admit(self, address: str, is_local: bool = True) -> str | None:
        """The reason why a new connection from this address is rejected, or None (L7)."""
        problem = self.admission.rejection_reason(address, is_local, len(self.peers))
        if problem is not None:
            self._broker.counters.connections_rejected += 1
            self._reports.log_limited("peer refused", address=address, reason=problem)
        return problem

    def ended(self, peer: StreamConnection, problem: str) -> None:
        """The stream is at its end, or broken."""
        if not peer.is_open and not peer.is_lost and peer.heard > peer.since:  # a mere look at the port is no news
            self._reports.log_limited("peer left before the handshake was done", peer=peer, reason=problem)
        self._lose(peer, problem)
        self.request_iteration()

    # ---------------------------------------------------------------- from sessions

    def close(self, whom: interface.Connection, reason: str) -> None:
        peer = cast(StreamConnection, whom)
        if peer.closing is None:
            peer.closing = reason
            if not peer.out:
                self._dirty.append(peer)
            self.request_iteration()

    def bad_message(self, sender: interface.Connection, reason: str, detail: str = "") -> None:
        peer = cast(StreamConnection, sender)
        self._count_bad(peer, reason)
        now = self._clock()
        if now - peer.bad_since > 10.0:
            peer.bad_since, peer.bad_count = now, 0
        peer.bad_count += 1
        self._reports.bad_message(peer, reason, detail)
        if peer.bad_count >= self.limits.bad_messages and peer.closing is None:
            self._reports.log_limited(
                "peer disconnected", peer=peer, reason=f"{peer.bad_count} bad messages within 10 s"
            )
            self.close(peer, f"{peer.bad_count} bad messages within 10 s")

    def when_process_ends(
        self, whose: interface.Connection, call: Callable[[float], None]
    ) -> Callable[[], None] | None:
        peer = cast(StreamConnection, whose)
        if self.process_watch is None or not peer.process:
            return None

        def ended() -> None:
            self._fenced(peer, lambda: call(self._clock()))
            self.request_iteration()

        return self.process_watch(peer.process, ended)

    def request_iteration(self) -> None:
        """A verb was called, or there is something to write: carry out what follows from it soon."""
        if not self.is_awake:
            self.is_awake = True
            self.wake()

    def remark(
        self, event: str, /, *, level: str = "info", peer: interface.Connection | None = None, **fields: object
    ) -> None:
        self._reports.remark(event, level=level, peer=peer, **fields)

    def remark_limited(
        self, event: str, /, *, peer: interface.Connection, level: str = "info", **fields: object
    ) -> None:
        self._reports.remark_limited(event, level=level, peer=peer, **fields)

    def log_limited(self, event: str, /, *, peer: interface.Connection | None = None, **fields: object) -> None:
        self._reports.log_limited(event, peer=peer, **fields)

    # ---------------------------------------------------------------- from the runner

    def watch(self, now: float) -> None:
        """Ask silent peers for a life sign, and close connections that are dead or never greet (D12)."""
        for peer in self.life_signs.due(now):
            sign = self.life_signs.judge(peer, now)
            if sign is ASK:
                self._post(peer, [peer.carrier.ping() or b""])
            elif sign is NO_HANDSHAKE:
                self._count_bad(peer, "handshake timeout")
                reason = f"no handshake within {peer.limits.handshake_timeout:g} s"
                self._reports.log_limited("peer refused", peer=peer, reason=reason)
                self.close(peer, reason)
            elif sign is SILENT:
                silent = now - peer.heard
                self._reports.remark("peer silent", level="warning", peer=peer, seconds=round(silent, 1))
                self.close(peer, f"nothing heard for {silent:.0f} s")

    def read_all(self, until: float) -> None:
        """Read what has come while the broker stood still, but not for longer than this."""
        for peer in list(self.peers):
            if peer.stream is not None and not peer.is_lost:
                peer.stream.read_dry()
            if self._clock() > until:
                break

    def excuse(self, gap: float, now: float) -> None:
        """The broker stood still for so long: no peer was late meanwhile (D13)."""
        for peer in self.peers:
            self.life_signs.excuse(peer, gap, now)

    # ---------------------------------------------------------------- one connection

    def _lose(self, peer: StreamConnection, reason: str) -> None:
        """The end of a connection: tell the session, once, and which of its messages never left."""
        if peer.is_lost:
            return
        peer.is_lost = True
        peer.owner.connections -= 1
        peer.carrier.release()
        self._budget.forget(peer)
        self.life_signs.forget(peer)
        self._reports.forget(peer)
        self.peers.pop(peer, None)
        peer.closed_in_order = peer.stream is not None and peer.stream.closed_in_order and not peer.out
        unsent = peer.take_unsent()
        if peer.stream is not None:
            peer.stream.close()
            self._count_traffic(peer, peer.stream)
        if peer.stream is not None and not peer.dialled:
            self.admission.leave(peer.address)
        peer.closing = peer.closing or reason
        if peer.is_open or peer.dialled:
            now = self._clock()
            self._fenced(peer, lambda: peer.session.lost(peer, unsent, now))

    def _post(self, peer: StreamConnection, buffers: Sequence[Frame]) -> None:
        """Bytes of the carrier's own: greeting, handshake, life signs."""
        if not peer.out and buffers:
            self._dirty.append(peer)
            self.request_iteration()
        peer.out += buffers

    def _shed(self, verdict: Verdict) -> None:
        if verdict is not None:
            peer, reason = verdict
            self._broker.counters.connections_closed_slow += 1
            self._reports.log_limited("peer costs too much", peer=peer, reason=reason)
            self.close(peer, reason)

    def _fenced(self, peer: StreamConnection, call: Callable[[], object]) -> None:
        try:
            call()
        except InvariantBroken:
            raise
        except Exception as error:
            self._crashed(peer, error, [])

    def _crashed(self, peer: StreamConnection, error: Exception, messages: Messages) -> None:
        """Close the one connection that a fault of the broker hurts (R27). Lengths are logged, never contents."""
        shapes = [[len(f) for f in m] if isinstance(m, list) else f"too large: {m.size}" for m in messages[-64:]]
        self._reports.internal_error(error, peer=peer, messages=shapes)
        self.close(peer, "internal error")

    def _count_bad(self, peer: StreamConnection, reason: str) -> None:
        self._broker.counters.bad_message(_dialect_of(peer), reason)

    def _count_traffic(self, peer: StreamConnection, stream: ByteStream) -> None:
        received, sent = self.traffic.get(_dialect_of(peer), (0, 0))
        self.traffic[_dialect_of(peer)] = received + stream.received, sent + stream.sent


def _dialect_of(peer: StreamConnection) -> str:
    dialect: str = getattr(peer.session, "dialect", "?")
    return dialect
