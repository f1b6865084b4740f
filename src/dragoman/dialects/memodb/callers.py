"""Callers of one listener: their requests, from JOB until the reply can no longer be requested again.

A caller's repeated request is recognised by its connection, its request id and a hash of the whole message (R62, R63).
On a new connection it is looked up among the orphans, whose connection has ended.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome
from dragoman.core.infinity import inf
from dragoman.core.model import Job
from dragoman.core.options import JobOptions
from dragoman.core.recipients import Recipient
from dragoman.core.recording import submitted, to_caller
from dragoman.core.shares import Shares, administers, has_share, holder_of, share_mark
from dragoman.core.states import CANCELLED, DONE, REFUSED
from dragoman.dialects.interface import BrokerIO, Connection
from dragoman.dialects.memodb.codec import write_result
from dragoman.dialects.memodb.options import ListenerOptions
from dragoman.dialects.memodb.records import (
    ConnectionRecord,
    Key,
    PendingCall,
    RemoteMemoDbWorker,
    key_of,
    log_about_peer,
    may_be_back,
)
from dragoman.dialects.memodb.reply_cache import ReplyCache

MAX_TIMEOUT: Final = 86_400_000  # milliseconds: a day (R72)
ENDLESS: Final = -1
TIMEOUTS_KEPT: Final = 1024  # number of different values
RESULT_TO_CALLER: Final = write_result(b"")


class Callers:
    """The callers of one listener."""

    __slots__ = (
        "_apart",
        "_broker",
        "_io",
        "_job_options",
        "_max_payload",
        "_options",
        "_parked_mark",
        "_recipient",
        "_records",
        "_workers",
        "answers",
        "orphans",
        "waiting",
    )

    def __init__(
        self,
        recipient: Recipient,
        broker: Broker,
        io: BrokerIO,
        options: ListenerOptions,
        max_payload: int,
        workers: dict[bytes, RemoteMemoDbWorker],
    ) -> None:
        """`recipient` receives the effects for these callers. `workers` count as waiting, too."""
        self._recipient = recipient
        self._broker = broker
        self._io = io
        self._options = options
        self._max_payload = max_payload
        self._workers = workers
        self._job_options: dict[int, JobOptions] = {}  # by the time-out on the wire
        self.orphans: dict[Key, PendingCall] = {}  # R62: calls whose connection has ended
        self.waiting = 0  # calls without a reply
        self._records: dict[str, dict[ConnectionRecord, None]] = {}  # of open connections, by holder (R254)
        self._apart = Shares(options.max_parked)  # workers, and calls without a reply whose connection has ended
        self._parked_mark = share_mark(options.max_parked)
        self.answers = ReplyCache(options.keep_answers, options.max_kept_bytes, self._forget_answer)

    # ---------------------------------------------------------------- requests

    def receive_job(
        self, peer: Connection, route: bytes, request_hash: int, service: str, timeout: int, payload: Frame, now: float
    ) -> None:
        if len(payload) > self._max_payload:
            raise Malformed("too large", f"{len(payload)} bytes, over max_payload {self._max_payload}")
        record: ConnectionRecord = peer.remote
        if route in record.waiting or route in record.answered:
            known = record.waiting.get(route) or record.answered[route]
            if known.request_hash == request_hash:
                self._repeat_reply(known)
                return
            self._supersede(known, now)
        if self.orphans:
            orphan = self.orphans.get(key_of(peer, route, request_hash))
            if orphan is not None and may_be_back(orphan, peer):
                del self.orphans[orphan.key]
                self._adopt(orphan, peer, route)
                return
        if not self.make_room(peer, now):
            return
        job_options = self._job_options.get(timeout) or self._options_for(timeout)
        call = PendingCall(self._recipient, peer, route, request_hash, timeout)
        record.waiting[route] = call
        self.waiting += 1
        job = self._broker.submit(service, payload, call, job_options, now)
        if job is not None and job.conversation is not None:
            submitted(job, call, "JOB", len(payload), now)

    def _repeat_reply(self, call: PendingCall) -> None:
        """Handle a repeated request: the same job, and the same reply if there is one (R62, R63)."""
        if call.is_answered and call.peer is not None:
            self._broker.counters.replayed_answers += 1
            self._io.send(call.peer, [call.route, RESULT_TO_CALLER, call.result])

    def _adopt(self, call: PendingCall, peer: Connection, route: bytes) -> None:
        """Continue a call on the caller's new connection (R62)."""
        call.peer, call.route = peer, route
        if call.is_answered:
            peer.remote.answered[route] = call
        else:
            peer.remote.waiting[route] = call
            self._apart.leave(holder_of(call.owner.principal, call.address))
            self._broker.availability.caller_back(call)
        self._repeat_reply(call)

    def _supersede(self, call: PendingCall, now: float) -> None:
        """Drop a call, because a REQ that sends another request under the same id has dropped it (R69)."""
        if call.is_answered:
            self.answers.drop(call)
        elif call.job is not None:
            self._drop(call, "its caller sent another request", now)
        else:
            self._close(call)

    def _drop(self, call: PendingCall, reason: str, now: float) -> None:
        """Drop a call without a reply. Its job ends, if it has not started."""
        job = call.job
        assert job is not None
        self._close(call)
        self._broker.caller_gone(call, now, reason)
        self._broker.counters.unreported_outcome(CANCELLED)
        log_about_peer(self._io, call.peer, "call dropped", job=job.id.hex(), reason=reason)

    def make_room(self, peer: Connection, now: float) -> bool:
        """Drop the oldest call of the connection if a limit is reached. Returns False if it has none (R76)."""
        record: ConnectionRecord = peer.remote
        options = self._options
        parked = len(record.waiting) + len(record.remotes)
        everywhere = self.waiting + len(self._workers)
        has_share = everywhere < self._parked_mark or self._has_share(peer, everywhere)
        if parked < options.max_parked_per_peer and has_share:
            return True
        limit = "max_parked_per_peer" if parked >= options.max_parked_per_peer else "max_parked"
        for call in record.waiting.values():
            if call.job is not None:
                self._drop(call, f"too many requests wait for a reply ({limit})", now)
                return True
        self._broker.counters.unreported_outcome(REFUSED)
        log_about_peer(self._io, peer, "no room", parked=parked, everywhere=everywhere, limit=limit)
        return False

    def _has_share(self, peer: Connection, everywhere: int) -> bool:
        """Tell if the principal of a connection may park one more request (R254)."""
        principal = peer.owner.principal
        holder = holder_of(principal, peer.address)
        held = self._apart.held(holder)
        for record in self._records.get(holder, ()):
            held += len(record.waiting)
        return has_share(self._options.max_parked, everywhere, held, 1, is_administrator=administers(principal))

    def opened(self, peer: Connection) -> None:
        self._records.setdefault(holder_of(peer.owner.principal, peer.address), {})[peer.remote] = None

    def worker_joined(self, remote: RemoteMemoDbWorker) -> None:
        self._apart.enter(holder_of(remote.principal, remote.address))

    def worker_left(self, remote: RemoteMemoDbWorker) -> None:
        self._apart.leave(holder_of(remote.principal, remote.address))

    def lost(self, peer: Connection, now: float) -> None:
        """Orphan the calls of an ended connection until their callers repeat them."""
        record: ConnectionRecord = peer.remote
        holder = holder_of(peer.owner.principal, peer.address)
        records = self._records[holder]
        del records[record]
        if not records:
            del self._records[holder]
        if record.waiting:
            self._apart.enter(holder, len(record.waiting))
        for call in (*record.waiting.values(), *record.answered.values()):
            if peer.closed_in_order and call.is_answered:
                self.answers.drop(call)  # its caller has the reply: an equal request now is a different one
                continue
            call.peer = None
            call.process, call.left_at = peer.process, now
            self.orphans[call.key] = call
            self._broker.availability.caller_away(call, now)

    # ---------------------------------------------------------------- replies

    def answer(self, answer: DeliverOutcome, now: float) -> None:
        call: PendingCall = answer.caller  # type: ignore[assignment]
        peer = call.peer
        call.remove_job(answer.job)
        if answer.job is not None and answer.job.conversation is not None and peer is not None:
            to_caller(answer.job, call, "RESULT" if answer.outcome is DONE else "", len(answer.result), now)
        if call.is_over:
            return
        if answer.outcome is not DONE:
            self._close(call)
            self._broker.counters.unreported_outcome(answer.outcome)  # R73
            return
        self.waiting -= 1
        call.is_answered = True
        call.result = answer.result
        if peer is not None:
            record: ConnectionRecord = peer.remote
            route = call.route
            del record.waiting[route]
            record.answered[route] = call
            self._io.send(peer, [route, RESULT_TO_CALLER, call.result])
        else:
            self._apart.leave(holder_of(call.owner.principal, call.address))
        self.answers.keep(call, now)

    def _close(self, call: PendingCall) -> None:
        """End a call without a reply and forget it: a repetition is a new call."""
        call.is_over = True
        self.waiting -= 1
        if call.peer is not None:
            del call.peer.remote.waiting[call.route]
        else:
            self._apart.leave(holder_of(call.owner.principal, call.address))
            self._drop_orphan(call)

    def _forget_answer(self, call: PendingCall) -> None:
        if call.peer is not None:
            del call.peer.remote.answered[call.route]
        else:
            self._drop_orphan(call)

    def _drop_orphan(self, call: PendingCall) -> None:
        if self.orphans.get(call.key) is call:
            del self.orphans[call.key]

    # ---------------------------------------------------------------- time-outs

    def _options_for(self, timeout: int) -> JobOptions:
        if timeout > MAX_TIMEOUT:
            self._broker.counters.clamped_timeouts += 1
            timeout = MAX_TIMEOUT
        job_options = self._job_options.get(timeout)
        if job_options is None:
            if len(self._job_options) >= TIMEOUTS_KEPT:
                self._job_options.clear()
            options = self._options
            job_options = self._job_options[timeout] = JobOptions(
                queue_timeout=options.queue_timeout or inf,
                job_timeout=inf if timeout == ENDLESS else timeout / 1000,
                attempts=options.attempts,
                waits=True,  # a worker may still come
                orphan_grace=options.orphan_grace,
            )
        return job_options


def milliseconds(job: Job) -> int:
    """Return the time limit of a job as it is on the wire, in milliseconds."""
    seconds = job.options.job_timeout
    if seconds == inf:
        is_endless = any(type(caller) is PendingCall and caller.timeout == ENDLESS for caller in job.callers)
        return ENDLESS if is_endless else MAX_TIMEOUT
    return max(1, ceil(round(seconds * 1000, 3)))
