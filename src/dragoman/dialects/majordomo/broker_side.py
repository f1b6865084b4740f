"""The broker's side of Majordomo: clients and workers on one socket.

The first message of a connection decides if it is a client or a worker, and its edition. The client's frame, which a
worker returns unchanged, is the token of the attempt, so a reply names its attempt (R1). A late reply is
harmless, and is distinguished from an invented one (T8).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, cast

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.admission import join_refusal
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.infinity import inf
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.model import Attempt, Token, Worker
from dragoman.core.oversize import over_max_payload
from dragoman.core.recipients import RemoteWorker
from dragoman.core.recording import from_worker, record_heartbeat, submitted, to_caller, to_worker
from dragoman.core.rights import CALL
from dragoman.core.states import DONE, REFUSED, RefusalReason, RemovalReason
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.dialects.listener_profile import default_job_options, silent_worker
from dragoman.dialects.majordomo.codec import (
    MAX_SERVICE_BYTES,
    RESERVED,
    read_client,
    read_worker,
    recognise,
    write_client_part,
    write_client_reply,
    write_disconnect,
    write_heartbeat,
    write_worker_request,
)
from dragoman.dialects.majordomo.editions import EditionFrames
from dragoman.dialects.majordomo.messages import Disconnect, Heartbeat, Ready, WorkerMessage, WorkerReply
from dragoman.dialects.majordomo.options import ListenerOptions
from dragoman.dialects.routing_ids import RECONNECTED, RoutingIds

UNANSWERED_KEPT: Final = 10_000  # tokens of attempts whose workers left without a reply
BEATS_AT_ONCE: Final = 256  # heartbeats per tick, so that many workers that joined at once do not delay an iteration

NAMES: Final = {Ready: "READY", WorkerReply: "REPLY", Heartbeat: "HEARTBEAT", Disconnect: "DISCONNECT"}

FOUND: Final = b"200"
NOT_FOUND: Final = b"404"
NOT_IMPLEMENTED: Final = b"501"


class RemoteMajordomoWorker(RemoteWorker):
    """A worker's connection, and the core's worker for it."""

    __slots__ = ("beat_due", "is_parted", "last_reply", "name", "peer", "wire", "worker")

    def __init__(self, peer: Connection, wire: EditionFrames) -> None:
        self.peer = peer
        self.wire = wire
        self.name = peer.identity.decode("utf-8", "backslashreplace") if peer.identity else peer.label
        self.worker: Worker | None = None
        self.last_reply: Token | None = None  # token of its last reply
        self.is_parted = False  # DISCONNECT was sent or received: nothing is sent until its READY
        self.beat_due = inf

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that was sent and has no reply yet, current or not."""
        return self.worker.held() if self.worker is not None else None


class MajordomoCaller:
    """The record of one client's connection."""

    __slots__ = ("wire",)

    def __init__(self, wire: EditionFrames) -> None:
        self.wire = wire


class MajordomoBrokerSide(BrokerSide):
    dialect = "majordomo"

    def __init__(self, broker: Broker, io: BrokerIO, options: ListenerOptions, max_payload: int) -> None:
        self._broker = broker
        self._io = io
        self._heartbeat = options.heartbeat
        self._max_payload = max_payload
        # D5: a single-threaded worker, as in the Guide, sends nothing during a job. D12 detects its death.
        profile = silent_worker(options, options.heartbeat * options.liveness)
        self._profile = replace(profile, max_payload=max_payload, comes_back=True)
        self._job_options = default_job_options(options)
        self._streaming = replace(self._job_options, streams=True)
        self.routing_ids = RoutingIds(broker, io, self._supersede)
        self._beats: OrderedDict[RemoteMajordomoWorker, None] = OrderedDict()  # all workers, in the order of `beat_due`
        self._unanswered: OrderedDict[Token, None] = OrderedDict()

    # ---------------------------------------------------------------- calls from the runner

    def opened(self, peer: Connection, now: float) -> None:
        self.routing_ids.take(peer, now)

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        remote = peer.remote
        try:
            if remote is None:
                remote = self._identify(peer, message)
            if type(remote) is RemoteMajordomoWorker:
                self._receive_worker(remote, message, now)
            else:
                self._receive_client(peer, remote, message, now)
        except Malformed as problem:
            self._io.bad_message(peer, problem.reason, problem.detail)
            if type(remote) is RemoteMajordomoWorker:
                self._disconnect(remote, f"its worker sent a bad message: {problem.reason}", now)

    def unsent(self, remote: RemoteWorker) -> int:
        return self._io.unsent(cast(RemoteMajordomoWorker, remote).peer)

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._send_job(effect.attempt, now)
        elif type(effect) is DeliverOutcome:
            self._answer(effect, now)
        elif type(effect) is DeliverProgress:
            self._send_part(effect, now)
        elif type(effect) is RemoveWorker:
            self._remove_worker(effect, now)
        # CancelAttempt: Majordomo has no message for it. Acknowledge: its callers cannot submit background jobs.

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        self.routing_ids.release(peer)
        remote = peer.remote
        if isinstance(remote, RemoteMajordomoWorker):
            self._leave(remote, "its worker's connection ended", now, [m for m in unsent if isinstance(m, Attempt)])
        else:
            self._broker.caller_gone(peer, now)

    def tick(self, now: float) -> float:
        """Send each worker, idle or not, a heartbeat per period. All have the same period, so the order is a queue."""
        for _ in range(BEATS_AT_ONCE):
            remote = next(iter(self._beats), None)
            if remote is None:
                return inf
            if remote.beat_due > now:
                return remote.beat_due
            if remote.worker is None:  # it may not join
                del self._beats[remote]
                self._io.send(remote.peer, write_disconnect(remote.wire))
                continue
            self._beat_later(remote, now)
            self._io.send(remote.peer, write_heartbeat(remote.wire))
        return now

    # ---------------------------------------------------------------- new connections

    def _identify(self, peer: Connection, message: Message | TooLarge) -> RemoteMajordomoWorker | MajordomoCaller:
        wire, is_worker = recognise(message.frames if isinstance(message, TooLarge) else message)
        peer.remote = RemoteMajordomoWorker(peer, wire) if is_worker else MajordomoCaller(wire)
        return peer.remote  # type: ignore[no-any-return]

    def _supersede(self, former: Connection, now: float) -> None:
        if isinstance(former.remote, RemoteMajordomoWorker):
            self._leave(former.remote, RECONNECTED, now)

    # ---------------------------------------------------------------- messages of workers

    def _receive_worker(self, remote: RemoteMajordomoWorker, message: Message | TooLarge, now: float) -> None:
        if type(message) is TooLarge:
            self._receive_large(remote, message, now)
            return
        assert type(message) is list
        parsed = read_worker(message, remote.wire)
        if type(parsed) is WorkerReply:
            self._reply(remote, parsed, now)
        elif remote.is_parted and type(parsed) is not Ready:
            pass  # it crossed the broker's DISCONNECT
        elif type(parsed) is Heartbeat and remote.worker is not None:
            self._broker.seen(remote.worker, now)
            record_heartbeat(remote.worker, "HEARTBEAT", now)
        elif type(parsed) is Disconnect:
            self._leave(remote, "its worker sent DISCONNECT", now)
            remote.is_parted = True
        elif type(parsed) is Ready and remote.worker is None:
            self._join(remote, parsed.service, now)
        else:
            self._unexpected(remote, parsed, now)

    def _reply(self, remote: RemoteMajordomoWorker, reply: WorkerReply, now: float) -> None:
        attempt = remote.attempt
        if attempt is None or reply.client != attempt.token:
            self._reply_out_of_turn(remote, reply, now)
            return
        if attempt.job.conversation is not None:
            name = remote.wire.reply_name if reply.is_final else "PARTIAL"
            from_worker(attempt, name, len(reply.body), now)
        if not reply.is_final:
            if len(reply.body) > self._max_payload:
                raise Malformed("too large", over_max_payload("a part of a result", len(reply.body), self._max_payload))
            if not self._broker.attempts.progress(attempt, reply.body, now, is_part=True):
                self._broker.counters.dropped_parts += 1
        else:
            remote.last_reply = attempt.token
            if len(reply.body) > self._max_payload:
                self._broker.fail(attempt, over_max_payload("its result", len(reply.body), self._max_payload), now)
            elif not self._broker.succeed(attempt, reply.body, now):
                self._log_late(remote, job=attempt.job.id.hex())

    def _reply_out_of_turn(self, remote: RemoteMajordomoWorker, reply: WorkerReply, now: float) -> None:
        """Count a reply to an earlier attempt as late (D2). Any other is invented, or its sender is out of step."""
        is_late = reply.client == remote.last_reply or bytes(reply.client[:17]) in self._unanswered
        if is_late:
            if reply.is_final:
                self._broker.counters.late_results += 1
            else:
                self._broker.counters.dropped_parts += 1
            self._log_late(remote)
        if remote.worker is not None and is_late:
            self._broker.seen(remote.worker, now)
        elif not remote.is_parted:
            self._unexpected(remote, reply, now)

    def _receive_large(self, remote: RemoteMajordomoWorker, message: TooLarge, now: float) -> None:
        """Fail the job of a result over the limit, which the carrier has dropped. The worker is free."""
        parsed = read_worker(message.frames, remote.wire)
        attempt = remote.attempt
        if type(parsed) is WorkerReply and parsed.is_final and attempt is not None and parsed.client == attempt.token:
            problem = message.malformed()
            self._io.bad_message(remote.peer, problem.reason, problem.detail)
            remote.last_reply = attempt.token
            from_worker(attempt, remote.wire.reply_name, message.size, now)
            self._broker.fail(attempt, over_max_payload("its result", message.size, self._max_payload), now)
            return
        raise message.malformed()

    def _unexpected(self, remote: RemoteMajordomoWorker, parsed: WorkerMessage, now: float) -> None:
        """Reject a valid command in the wrong state (RFC 7)."""
        name = NAMES[type(parsed)]
        self._io.bad_message(remote.peer, "unexpected command", f"{name} from a worker that {_state_of(remote)}")
        self._disconnect(remote, f"its worker sent {name} out of turn", now)

    def _log_late(self, remote: RemoteMajordomoWorker, job: str = "") -> None:
        self._io.remark_limited("late result", peer=remote.peer, worker=remote.name, job=job)

    # ---------------------------------------------------------------- workers join and leave

    def _join(self, remote: RemoteMajordomoWorker, service: str, now: float) -> None:
        worker = self._broker.join(
            self, remote, remote.name, (service,), self._profile, now, remote.peer.owner, origin=remote.peer.label
        )
        if worker is None:
            self._refuse(remote, service, now)
            return
        remote.worker = worker
        remote.is_parted = False
        self._beat_later(remote, now)
        self._io.when_settled(remote.peer, partial(self._broker.idle, worker))

    def _refuse(self, remote: RemoteMajordomoWorker, service: str, now: float) -> None:
        """Send nothing now: after DISCONNECT, the Guide's worker reconnects at once, again and again. Without the right
        to join, it gets DISCONNECT when a heartbeat would be due (R174); otherwise it reconnects by itself."""
        remote.is_parted = True
        refusal, reason = join_refusal(remote.peer.owner.principal, (service,), self._broker.policy)
        if refusal is RefusalReason.FORBIDDEN:
            self._beat_later(remote, now)
        else:
            self._io.log_limited(
                "worker rejected", peer=remote.peer, worker=remote.name, service=service, reason=reason
            )

    def _beat_later(self, remote: RemoteMajordomoWorker, now: float) -> None:
        remote.beat_due = now + self._heartbeat
        self._beats[remote] = None
        self._beats.move_to_end(remote)

    def _leave(self, remote: RemoteMajordomoWorker, reason: str, now: float, unseen: Sequence[Attempt] = ()) -> None:
        worker = remote.worker
        self._forget(remote)
        if worker is not None:
            self._broker.leave(worker, now, reason, unseen)

    def _disconnect(self, remote: RemoteMajordomoWorker, reason: str, now: float) -> None:
        """Send DISCONNECT once: the worker must start again with READY."""
        self._leave(remote, reason, now)
        if not remote.is_parted:
            remote.is_parted = True
            self._io.send(remote.peer, write_disconnect(remote.wire))

    def _remove_worker(self, effect: RemoveWorker, now: float) -> None:
        remote = cast(RemoteMajordomoWorker, effect.worker.remote)
        if remote.worker is effect.worker:
            self._forget(remote)
            self._disconnect(remote, effect.reason, now)
            if effect.farewell is RemovalReason.STOPPED:
                self._io.close(remote.peer, effect.reason)  # its next READY must reach the next broker

    def _forget(self, remote: RemoteMajordomoWorker) -> None:
        attempt, remote.worker = remote.attempt, None
        self._beats.pop(remote, None)
        if attempt is not None:
            self._unanswered[attempt.token] = None
            if len(self._unanswered) > UNANSWERED_KEPT:
                self._unanswered.popitem(last=False)

    # ---------------------------------------------------------------- clients

    def _receive_client(
        self, peer: Connection, caller: MajordomoCaller, message: Message | TooLarge, now: float
    ) -> None:
        if type(message) is TooLarge:
            raise self._too_large(message.size)
        assert type(message) is list
        request = read_client(message, caller.wire)
        if len(request.body) > self._max_payload:
            raise self._too_large(len(request.body))
        if request.service.startswith(RESERVED):
            status = self._look_up(peer, request.service, request.body)
            self._io.send(peer, write_client_reply(caller.wire, request.service, status))
            return
        job_options = self._job_options if caller.wire.client_partial is None else self._streaming
        job = self._broker.submit(request.service, request.body, peer, job_options, now)
        if job is not None and job.conversation is not None:
            submitted(job, peer, "REQUEST", len(request.body), now)

    def _too_large(self, size: int) -> Malformed:
        """Count a request that is refused without an answer, because Majordomo has none."""
        self._broker.counters.refused += 1
        self._broker.counters.unreported_outcome(REFUSED)
        return Malformed("too large", f"{size} bytes are over max_payload {self._max_payload}")

    def _look_up(self, peer: Connection, service: str, body: Frame) -> bytes:
        """Return the status code of a request to the broker itself (RFC 8). A service that the client may not call is
        not found (R173)."""
        if service != "mmi.service":
            return NOT_IMPLEMENTED
        known = self._broker.worker_registry.services.get(body[: MAX_SERVICE_BYTES + 1].decode("utf-8", "replace"))
        is_found = known is not None and known.workers > 0 and peer.owner.principal.may(CALL, known.name)
        return FOUND if is_found else NOT_FOUND

    def _answer(self, answer: DeliverOutcome, now: float) -> None:
        peer: Connection = answer.caller  # type: ignore[assignment]
        caller: MajordomoCaller | None = peer.remote  # None: its connection has ended in this iteration
        job = answer.job
        peer.remove_job(job)
        if caller is None:
            return
        if job is not None and job.conversation is not None:
            to_caller(job, peer, caller.wire.reply_name if answer.outcome is DONE else "", len(answer.result), now)
        if answer.outcome is DONE and job is not None:
            self._io.send(peer, write_client_reply(caller.wire, job.service.name, answer.result))
        else:
            self._broker.counters.unreported_outcome(answer.outcome)  # R73

    def _send_part(self, progress: DeliverProgress, now: float) -> None:
        """Send a part of a result. Majordomo has no message for progress."""
        peer: Connection = progress.caller  # type: ignore[assignment]
        if progress.is_part and peer.remote is not None:
            name = progress.attempt.job.service.name
            to_caller(progress.attempt.job, peer, "PARTIAL", len(progress.payload), now)
            self._io.send(peer, write_client_part(peer.remote.wire, name, progress.payload))

    # ---------------------------------------------------------------- jobs

    def _send_job(self, attempt: Attempt, now: float) -> None:
        remote = cast(RemoteMajordomoWorker, attempt.worker.remote)
        if attempt.job.conversation is not None:
            to_worker(attempt, "REQUEST", len(attempt.job.payload), now)
        self._io.send(remote.peer, write_worker_request(remote.wire, attempt.token, attempt.job.payload), attempt)


def _state_of(remote: RemoteMajordomoWorker) -> str:
    if remote.worker is None:
        return "has not sent READY"
    return "holds another job" if remote.attempt is not None else "holds no job"
