"""Ends of connections: bad messages, silence, internal errors.

A connection ends because its stream ends (`ended`), because a broker side closes it, or because it is silent, uses too
much memory or sends bad messages. In every case `_lose` notifies its broker side once.
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
from dragoman.server.heartbeats import NO_HANDSHAKE, SEND_PING, SILENT, Heartbeats
from dragoman.server.memory_budget import MemoryBudget, OverBudget
from dragoman.server.reports import Reports
from dragoman.streams.byte_stream import ByteStream

# Calls back once when the process with this id has ended. Returns a function that stops the watch, or None if the
# process cannot be watched.
ProcessWatch = Callable[[int, Callable[[], None]], Callable[[], None] | None]


class ConnectionEnds(interface.BrokerIO):
    """State of all connections, and the ways in which they end."""

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
        self.heartbeats = Heartbeats()
        self.peers: dict[StreamConnection, None] = {}
        self.wake = wake  # requests an iteration from the owner of the loop
        self.is_awake = False  # an iteration is running or requested
        self.next_run = inf  # latest time for the next iteration
        self.dialler = dialler
        self.process_watch: ProcessWatch | None = None
        self.later = later  # calls back after this many seconds of real time
        self.traffic: dict[str, tuple[int, int]] = {}  # by dialect: bytes received and sent on ended connections
        self._broker = broker
        self._clock = clock
        self._reports = reports
        self._strict = strict
        self._before_write: list[Callable[[float], None]] = []  # calls to make before the next write
        self._dirty: list[StreamConnection] = []  # connections with something to write or to close
        self._budget = MemoryBudget(limits.max_memory)

    # ---------------------------------------------------------------- from streams

    def admit(self, address: str, is_local: bool = True) -> str | None:
        """Return the reason to reject a new connection from this address, or None (L7)."""
        problem = self.admission.rejection_reason(address, is_local, len(self.peers))
        if problem is not None:
            self._broker.counters.connections_rejected += 1
            self._reports.log_limited("connection rejected", address=address, reason=problem)
        return problem

    def ended(self, peer: StreamConnection, problem: str) -> None:
        """Handle the end of a stream, or an error on it."""
        if not peer.is_open and not peer.is_lost and peer.last_received > peer.since:  # a port scan is not logged
            self._reports.log_limited("handshake aborted", peer=peer, reason=problem)
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
                "connection closed", peer=peer, reason=f"{peer.bad_count} bad messages within 10 s"
            )
            self.close(peer, f"{peer.bad_count} bad messages within 10 s")

    def when_process_ends(
        self, whose: interface.Connection, call: Callable[[float], None]
    ) -> Callable[[], None] | None:
        peer = cast(StreamConnection, whose)
        if self.process_watch is None or not peer.process:
            return None

        def ended() -> None:
            self._guarded(peer, lambda: call(self._clock()))
            self.request_iteration()

        return self.process_watch(peer.process, ended)

    def request_iteration(self) -> None:
        """Request an iteration soon: a broker method was called, or there is something to write."""
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
        """Send a PING to silent connections; close those that are dead or never finish the handshake (D12)."""
        for peer in self.heartbeats.due(now):
            state = self.heartbeats.check(peer, now)
            if state is SEND_PING:
                self._post(peer, [peer.carrier.ping() or b""])
            elif state is NO_HANDSHAKE:
                self._count_bad(peer, "handshake timeout")
                reason = f"no handshake within {peer.limits.handshake_timeout:g} s"
                self._reports.log_limited("connection rejected", peer=peer, reason=reason)
                self.close(peer, reason)
            elif state is SILENT:
                reason = f"nothing received for {now - peer.last_received:.0f} s (carrier_timeout)"
                self._reports.remark("connection closed", level="warning", peer=peer, reason=reason)
                self.close(peer, reason)

    def read_all(self, until: float) -> None:
        """Read what arrived during a pause of the broker, at most until this time."""
        for peer in list(self.peers):
            if peer.stream is not None and not peer.is_lost:
                peer.stream.read_dry()
            if self._clock() > until:
                break

    def extend_deadlines(self, gap: float, now: float) -> None:
        """Move the due times of all connections by `gap` seconds, in which the broker was paused (D13)."""
        for peer in self.peers:
            self.heartbeats.extend(peer, gap, now)

    # ---------------------------------------------------------------- one connection

    def _lose(self, peer: StreamConnection, reason: str) -> None:
        """End a connection: notify the broker side, once, with the messages that were never sent."""
        if peer.is_lost:
            return
        peer.is_lost = True
        peer.owner.connections -= 1
        peer.carrier.release()
        self._budget.forget(peer)
        self.heartbeats.forget(peer)
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
            self._guarded(peer, lambda: peer.session.lost(peer, unsent, now))

    def _post(self, peer: StreamConnection, buffers: Sequence[Frame]) -> None:
        """Queue bytes of the carrier itself: greeting, handshake, PING."""
        if not peer.out and buffers:
            self._dirty.append(peer)
            self.request_iteration()
        peer.out += buffers

    def _close_over_budget(self, over_budget: OverBudget) -> None:
        if over_budget is not None:
            peer, reason = over_budget
            self._broker.counters.connections_closed_slow += 1
            self._reports.log_limited("connection closed", peer=peer, reason=reason)
            self.close(peer, reason)

    def _guarded(self, peer: StreamConnection, call: Callable[[], object]) -> None:
        try:
            call()
        except InvariantBroken:
            raise
        except Exception as error:
            self._crashed(peer, error, [])

    def _crashed(self, peer: StreamConnection, error: Exception, messages: Messages) -> None:
        """Close the one connection that an internal error affects (R27). Lengths are logged, never contents."""
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
