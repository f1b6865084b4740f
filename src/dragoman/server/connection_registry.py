"""The connection registry: all connections, their limits and their ends.

A connection ends because its stream ends, because a broker side closes it, or because it is silent, uses too much
memory, sends bad messages or causes an internal error. In every case `lose` notifies its broker side once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dragoman.carriers.carrier import Frame, Messages
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.counters import Counters
from dragoman.core.errors import InvariantBroken
from dragoman.core.memory import MemoryAccount
from dragoman.core.model import Worker
from dragoman.core.recipients import Recipient, dialect_of
from dragoman.core.rights import Principal
from dragoman.server.admission import Admission, AdmissionLimits
from dragoman.server.authentication import LOCAL_USER, UNKNOWN_CERTIFICATE, Admitted
from dragoman.server.connection import StreamConnection
from dragoman.server.handshakes import DISPLACED, Handshakes
from dragoman.server.heartbeats import NO_HANDSHAKE, SEND_PING, SILENT, Heartbeats
from dragoman.server.memory_budget import MemoryBudget
from dragoman.server.reports import Reports
from dragoman.streams.byte_stream import ByteStream

ABORTED: Final = "handshake aborted"
TOO_MANY_HANDSHAKES: Final = "too many handshakes"
TELLS_CERTIFICATE: Final = "this broker has no principal for the certificate of this client"


class ConnectionRegistry:
    """Admits connections, finds those that must end, and removes those that have ended.

    `close` closes a connection once its messages are written; `post` sends bytes of its carrier; `read_all` reads all
    connections, until a time.
    """

    def __init__(
        self,
        broker: Broker,
        clock: Callable[[], float],
        reports: Reports,
        limits: AdmissionLimits,
        memory: MemoryAccount,
        *,
        close: Callable[[StreamConnection, str], None],
        post: Callable[[StreamConnection, Sequence[Frame]], None],
        read_all: Callable[[float], None],
    ) -> None:
        self.peers: dict[StreamConnection, None] = {}
        self.admission = Admission(limits)
        self.heartbeats = Heartbeats()
        self.budget = MemoryBudget(memory)
        self.handshakes = Handshakes(limits.max_handshakes, limits.max_unauthenticated, clock, self._handshake_rejected)
        # By broker side, so by listener: bytes received and sent on ended connections, and bad messages by reason.
        self.traffic: dict[Recipient, tuple[int, int]] = {}
        self.bad_messages: dict[Recipient, dict[str, int]] = {}
        self._removal = broker.dispatch.removal
        self._counters: Counters = broker.counters
        self._clock = clock
        self._reports = reports
        self._max_bad_messages = limits.bad_messages
        self._close = close
        self.post = post
        self._read_all = read_all

    # ---------------------------------------------------------------- begin and end

    @property
    def is_writing(self) -> bool:
        """True if messages are still being written: the last one may be more than the kernel takes at once."""
        return any(peer.out or (peer.stream is not None and peer.stream.backlog) for peer in self.peers)

    def admit(
        self, address: str, is_local: bool = True, principal: Principal | None = None, *, proves_more: bool = False
    ) -> str | None:
        """Return the reason to reject a new connection from this address, or None (L7, R254)."""
        connected = len(self.peers)
        problem = self.admission.rejection_reason(address, is_local, connected, principal, proves_more=proves_more)
        if problem is not None:
            self._counters.connections_rejected += 1
            self._reports.log_limited("connection rejected", address=address, reason=problem)
        return problem

    def enter(self, peer: StreamConnection) -> None:
        """Add a connection that has its stream."""
        self.peers[peer] = None
        if not peer.dialled:  # those have been counted when they were dialled
            self.admission.enter(peer.address)
        self.heartbeats.began(peer)

    def dial(self, peer: StreamConnection) -> str | None:
        """Add a connection that is being dialled. Returns the reason to reject it, or None (R217)."""
        problem = self.admission.dial_rejection(peer.session)
        peer.dialled = True
        self.peers[peer] = None
        self.admission.dial(peer.session)
        if problem is not None:
            source = "dialled connections"
            self._reports.remark_of(source, "dial rejected", level="warning", worker=peer.label, reason=problem)
        return problem

    def begin_handshake(self, peer: StreamConnection, mechanism: str) -> None:
        """Count a handshake that has begun (R168)."""
        peer.handshake = self.handshakes.begin(mechanism, peer.address, lambda: self._close(peer, DISPLACED))

    def end_handshake(self, peer: StreamConnection, *, is_done: bool) -> None:
        """Count the end of a handshake, if one is in progress."""
        handshake = peer.handshake
        if handshake is not None:
            peer.handshake = None
            self.handshakes.end(handshake, is_done=is_done)

    def lose(self, peer: StreamConnection, reason: str) -> None:
        """End a connection: notify the broker side, once, with the messages that were never sent."""
        if peer.is_lost:
            return
        peer.is_lost = True
        peer.owner.leave()
        peer.carrier.release()
        self.budget.forget(peer)
        self.heartbeats.forget(peer)
        self._reports.forget(peer)
        self.peers.pop(peer, None)
        peer.closed_in_order = peer.stream is not None and peer.stream.closed_in_order and not peer.out
        unsent = peer.take_unsent()
        if peer.stream is not None:
            peer.stream.close()
            self._count_traffic(peer, peer.stream)
        if peer.dialled:
            self.admission.hang_up(peer.session)
        elif peer.stream is not None:
            self.admission.leave(peer.address)
        peer.closing = peer.closing or reason
        self.end_handshake(peer, is_done=False)
        if peer.is_open or peer.dialled:
            now = self._clock()
            self.guarded(peer, lambda: peer.session.lost(peer, unsent, now))
        peer.remote = None  # the record of a broker side often refers to its connection

    # ---------------------------------------------------------------- bad messages

    def rejected(self, peer: StreamConnection, failure: Malformed) -> None:
        """Close a connection whose bytes its carrier cannot decode, or whose credentials are unknown."""
        self._count_bad(peer, failure.reason)
        self._reject(peer, failure.reason, failure.detail, failure.identity.hex()[:8])
        self._close(peer, f"{failure.reason}: {failure.detail}")

    def turned_away(self, peer: StreamConnection, reason: str, detail: str, identity: str) -> None:
        """Close a connection of which it is known who it is, and that is not admitted."""
        self._counters.connections_rejected += 1
        self._reject(peer, reason, detail, identity)
        told = peer.session.refusal(TELLS_CERTIFICATE) if reason == UNKNOWN_CERTIFICATE else None
        if told is not None:
            self.post(peer, peer.carrier.encode(told))
        self._close(peer, reason)

    def admitted(self, peer: StreamConnection, admitted: Admitted, *, is_by_old_key: bool) -> None:
        """Log the principal of a connection. Local users connect often: a controller's workers for every pulse."""
        level = "debug" if _mechanism_of(peer) == LOCAL_USER else "info"
        more = {"server_key": "old"} if is_by_old_key else {}
        self._reports.admitted(
            peer,
            level,
            principal=admitted.principal.name,
            mechanism=_mechanism_of(peer),
            identity=admitted.label,
            address=peer.address,
            **more,
        )

    def _handshake_rejected(self, mechanism: str, address: str, reason: str) -> None:
        """Count and log a connection that was closed because of the limits of handshakes (R168)."""
        self._counters.connections_rejected += 1
        self._counters.refuse_peer(mechanism, TOO_MANY_HANDSHAKES)
        self._reports.log_limited("connection rejected", address=address, mechanism=mechanism, reason=reason)

    def handshake_aborted(self, peer: StreamConnection, problem: str) -> None:
        """Count and log a connection that ended before it was open."""
        self._counters.refuse_peer(_mechanism_of(peer), ABORTED)
        self._reports.log_limited(ABORTED, peer=peer, mechanism=_mechanism_of(peer), reason=problem)

    def _reject(self, peer: StreamConnection, reason: str, detail: str, identity: str) -> None:
        fields = {"reason": reason, "detail": detail, "address": peer.address}
        if not peer.is_open:
            self._counters.refuse_peer(_mechanism_of(peer), reason)
            fields["mechanism"] = _mechanism_of(peer)
        if identity:
            fields["identity"] = identity
        self._reports.log_limited("connection rejected", peer=peer, **fields)

    def bad_message(self, peer: StreamConnection, reason: str, detail: str) -> None:
        """Count a bad message, and close the connection after too many (D6)."""
        self._count_bad(peer, reason)
        now = self._clock()
        if now - peer.bad_since > 10.0:
            peer.bad_since, peer.bad_count = now, 0
        peer.bad_count += 1
        self._reports.bad_message(peer, reason, detail)
        if peer.bad_count >= self._max_bad_messages and peer.closing is None:
            problem = f"{peer.bad_count} bad messages within 10 s"
            self._reports.log_limited("connection closed", peer=peer, reason=problem)
            self._close(peer, problem)

    # ---------------------------------------------------------------- silence and memory

    def watch(self, now: float) -> None:
        """Send a PING to silent connections; close those that are dead or never finish the handshake (D12)."""
        if self.budget.over:
            for peer, reason in self.budget.stalled(now):
                self._close_over_budget(peer, reason)
        for peer in self.heartbeats.due(now):
            state = self.heartbeats.check(peer, now)
            if state is SEND_PING:
                self.post(peer, [peer.carrier.ping() or b""])
            elif state is NO_HANDSHAKE:
                self._count_bad(peer, "handshake timeout")
                self._counters.refuse_peer(_mechanism_of(peer), "handshake timeout")
                reason = f"no handshake within {peer.limits.handshake_timeout:g} s"
                self._reports.log_limited(
                    "connection rejected", peer=peer, mechanism=_mechanism_of(peer), reason=reason
                )
                self._close(peer, reason)
            elif state is SILENT:
                reason = f"nothing received for {now - peer.last_received:.0f} s (carrier_timeout)"
                self._reports.remark("connection closed", level="warning", peer=peer, reason=reason)
                worker = getattr(peer.remote, "worker", None)
                if isinstance(worker, Worker):
                    self._removal.note_silent(worker, now)
                self._close(peer, reason)

    def check_partial(self, peer: StreamConnection) -> None:
        """Close the largest connection if incomplete messages take too much memory (L6)."""
        over_budget = self.budget.check_partial(peer)
        if over_budget is not None:
            self._close_over_budget(*over_budget)

    def check_unsent(self, peer: StreamConnection, now: float) -> None:
        """Close a connection if unsent data takes too much memory (R17)."""
        over_budget = self.budget.check_unsent(peer, now)
        if over_budget is not None:
            self._close_over_budget(*over_budget)

    def _close_over_budget(self, peer: StreamConnection, reason: str) -> None:
        self._counters.connections_closed_slow += 1
        self._reports.log_limited("connection closed", peer=peer, reason=reason)
        self._close(peer, reason)

    # ---------------------------------------------------------------- pauses of the broker

    def handle_pause(self, broker: Broker, gap: float) -> float:
        """Handle a pause of the broker or the machine (D13, R26): read what has arrived, then move every lease."""
        self._reports.remark("event loop stalled", level="warning", seconds=round(gap, 3))
        until = broker.resumed_at = self._clock()
        self._read_all(until + 1.0)
        now = self._clock()
        gap += now - until  # connections that are not read yet were not late
        broker.extend_leases(gap, now)
        self.budget.extend(gap)
        for peer in self.peers:
            self.heartbeats.extend(peer, gap, now)
        return now

    # ---------------------------------------------------------------- internal errors

    def guarded(self, peer: StreamConnection, call: Callable[[], object]) -> None:
        """Call a broker side. An exception closes the connection."""
        try:
            call()
        except InvariantBroken:
            raise
        except Exception as error:
            self.crashed(peer, error, [])

    def crashed(self, peer: StreamConnection, error: Exception, messages: Messages) -> None:
        """Close the one connection that an internal error affects (R27). Lengths are logged, never contents."""
        shapes = [[len(f) for f in m] if isinstance(m, list) else f"too large: {m.size}" for m in messages[-64:]]
        self._reports.internal_error(error, peer=peer, messages=shapes)
        self._close(peer, "internal error")

    def _count_bad(self, peer: StreamConnection, reason: str) -> None:
        self.count_bad(peer.session, reason)

    def count_bad(self, session: Recipient, reason: str) -> None:
        """Count a bad message on a connection of this broker side."""
        self._counters.bad_message(dialect_of(session), reason)
        reasons = self.bad_messages.setdefault(session, {})
        reasons[reason] = reasons.get(reason, 0) + 1

    def _count_traffic(self, peer: StreamConnection, stream: ByteStream) -> None:
        received, sent = self.traffic.get(peer.session, (0, 0))
        self.traffic[peer.session] = received + stream.wire_received, sent + stream.wire_sent


def _mechanism_of(peer: StreamConnection) -> str:
    return peer.auth.asked_for if peer.auth is not None else LOCAL_USER
