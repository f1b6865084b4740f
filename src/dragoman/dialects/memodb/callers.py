"""Callers of one listener: their requests, from JOB to the last time that the answer may be asked for.

A caller's request is known again by its connection, its request id and an imprint of the whole message (R62, R63). On a
new connection it is looked for among the orphans, whose connection is gone.
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
from dragoman.core.states import CANCELLED, DONE, REFUSED
from dragoman.dialects.interface import BrokerIO, Connection
from dragoman.dialects.memodb.codec import write_result
from dragoman.dialects.memodb.options import ListenerOptions
from dragoman.dialects.memodb.records import (
    ConnectionRecord,
    Key,
    MemoDbWorker,
    PendingCall,
    log_about_peer,
    may_be_back,
)
from dragoman.dialects.memodb.reply_cache import ReplyCache

MAX_TIMEOUT: Final = 86_400_000  # milliseconds: a day (R72)
ENDLESS: Final = -1
TIMEOUTS_KEPT: Final = 1024  # different ones
RESULT_TO_CALLER: Final = write_result(b"")


class Callers:
    """The callers of one listener."""

    __slots__ = (
        "_broker",
        "_io",
        "_job_options",
        "_max_payload",
        "_options",
        "_recipient",
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
        workers: dict[bytes, MemoDbWorker],
    ) -> None:
        """`recipient` receives the effects for these callers. `workers` wait for answers, too."""
        self._recipient = recipient
        self._broker = broker
        self._io = io
        self._options = options
        self._max_payload = max_payload
        self._workers = workers
        self._job_options: dict[int, JobOptions] = {}  # by the timeout on the wire
        self.orphans: dict[Key, PendingCall] = {}  # R62: calls whose connection is gone
        self.waiting = 0  # calls without an answer
        self.answers = ReplyCache(options.keep_answers, options.max_kept_bytes, self._forget_answer)

    # ---------------------------------------------------------------- requests

    def receive_job(
        self, peer: Connection, route: bytes, request_hash: int, service: str, timeout: int, payload: Frame, now: float
    ) -> None:
        if len(payload) > self._max_payload:
            raise Malformed("too large", f"{len(payload)} bytes are over max_payload {self._max_payload}")
        contacts: ConnectionRecord = peer.remote
        if route in contacts.waiting or route in contacts.answered:
            known = contacts.waiting.get(route) or contacts.answered[route]
            if known.request_hash == request_hash:
                self._say_again(known)
                return
            self._supersede(known, now)
        if self.orphans:
            orphan = self.orphans.get((peer.address, route[-4:], request_hash, peer.process))
            if orphan is not None and may_be_back(orphan, peer):
                del self.orphans[orphan.key]
                self._adopt(orphan, peer, route)
                return
        if not self.make_room(peer, now):
            return
        job_options = self._job_options.get(timeout) or self._options_for(timeout)
        call = PendingCall(self._recipient, peer, route, request_hash, timeout)
        contacts.waiting[route] = call
        self.waiting += 1
        self._broker.submit(service, payload, call, job_options, now, owner=peer.owner)

    def _say_again(self, call: PendingCall) -> None:
        """The same request once more: the same job, and the same answer if there is one (R62, R63)."""
        if call.is_answered and call.peer is not None:
            self._broker.counters.replayed_answers += 1
            self._io.send(call.peer, [call.route, RESULT_TO_CALLER, call.result])

    def _adopt(self, call: PendingCall, peer: Connection, route: bytes) -> None:
        """A caller is back on a new connection (R62)."""
        call.peer, call.route = peer, route
        if call.is_answered:
            peer.remote.answered[route] = call
        else:
            peer.remote.waiting[route] = call
            self._broker.caller_back(call)
        self._say_again(call)

    def _supersede(self, call: PendingCall, now: float) -> None:
        """Another request under the same id: a REQ that asks anew has dropped what it asked before (R69)."""
        if call.is_answered:
            self.answers.drop(call)
        elif call.job is not None:
            self._silence(call, "its caller asked for something else", now)
        else:
            self._close(call)

    def _silence(self, call: PendingCall, reason: str, now: float) -> None:
        """Nobody will hear of this call any more; its job ends, if it has not begun."""
        job = call.job
        assert job is not None
        self._close(call)
        self._broker.caller_gone(call, now, reason)
        self._broker.counters.unreported_outcome(CANCELLED)
        log_about_peer(self._io, call.peer, "call dropped", job=job.id.hex(), reason=reason)

    def make_room(self, peer: Connection, now: float) -> bool:
        """R76: beyond the bounds the oldest call of the connection gets silence; if it has none, the newcomer does."""
        contacts: ConnectionRecord = peer.remote
        options = self._options
        parked = len(contacts.waiting) + len(contacts.remotes)
        everywhere = self.waiting + len(self._workers)
        if parked < options.max_parked_per_peer and everywhere < options.max_parked:
            return True
        limit = "max_parked_per_peer" if parked >= options.max_parked_per_peer else "max_parked"
        for call in contacts.waiting.values():
            if call.job is not None:
                self._silence(call, f"too many requests wait for an answer ({limit})", now)
                return True
        self._broker.counters.unreported_outcome(REFUSED)
        log_about_peer(self._io, peer, "no room", parked=parked, everywhere=everywhere, limit=limit)
        return False

    def lost(self, peer: Connection, now: float) -> None:
        """A connection has ended: its calls are orphaned until their callers ask again."""
        contacts: ConnectionRecord = peer.remote
        for call in (*contacts.waiting.values(), *contacts.answered.values()):
            if peer.closed_in_order and call.is_answered:
                self.answers.drop(call)  # its caller has the answer: whoever asks for the same now is another
                continue
            call.peer = None
            call.process, call.left_at = peer.process, now
            self.orphans[call.key] = call
            self._broker.caller_away(call, now)

    # ---------------------------------------------------------------- answers

    def answer(self, answer: DeliverOutcome, now: float) -> None:
        call: PendingCall = answer.caller  # type: ignore[assignment]
        peer = call.peer
        call.remove_job(answer.job)
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
            contacts: ConnectionRecord = peer.remote
            route = call.route
            del contacts.waiting[route]
            contacts.answered[route] = call
            self._io.send(peer, [route, RESULT_TO_CALLER, call.result])
        self.answers.keep(call, now)

    def _close(self, call: PendingCall) -> None:
        """It ends in silence and is forgotten: should it come again, it is a new one."""
        call.is_over = True
        self.waiting -= 1
        if call.peer is not None:
            del call.peer.remote.waiting[call.route]
        else:
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
    """Milliseconds that its worker may take, as the wire has it."""
    seconds = job.options.job_timeout
    if seconds == inf:
        is_endless = any(type(caller) is PendingCall and caller.timeout == ENDLESS for caller in job.callers)
        return ENDLESS if is_endless else MAX_TIMEOUT
    return max(1, ceil(round(seconds * 1000, 3)))
