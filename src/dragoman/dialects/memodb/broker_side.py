"""The broker's side of MemoDB: workers and callers send requests, and the broker replies when it has something to send.

Any number of both share a connection. The reply to a request uses the route it came with; until then the request is
*parked*. NNG repeats a request by itself, on a timer and after a reconnect, under the same request id. A repeated
RESULT that is taken for a new one would be counted for the worker's next job. So this file and `callers.py` recognise
repeated requests (R60 to R65): a worker's by its id, a caller's by its connection, both by the request id and a hash of
the whole message. A request that has a reply gets the same bytes again; one without stays parked, at its new route. On
a new connection this applies only if it can belong to the same client: see `records.py:may_be_back`, and `lost` for
replies that were received.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.admission import join_refusal
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import CancelAttempt, DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt
from dragoman.core.options import WorkerProfile
from dragoman.core.oversize import over_max_payload
from dragoman.core.recipients import RemoteWorker
from dragoman.core.recording import from_worker, record_heartbeat, to_worker
from dragoman.core.rights import WORK
from dragoman.core.states import RefusalReason
from dragoman.dialects.interface import BrokerIO, BrokerSide, Connection
from dragoman.dialects.memodb import messages
from dragoman.dialects.memodb.callers import Callers, milliseconds
from dragoman.dialects.memodb.codec import read, read_plain, write_disconnect, write_heartbeat, write_job
from dragoman.dialects.memodb.messages import Heartbeat, ParsedMessage, Ready, Result
from dragoman.dialects.memodb.options import ListenerOptions
from dragoman.dialects.memodb.records import (
    WHOLE,
    ConnectionRecord,
    Key,
    RemoteMemoDbWorker,
    fingerprint,
    key_of,
    log_about_peer,
    may_be_back,
)

SOON: Final = 0.1  # seconds


class MemoDbBrokerSide(BrokerSide):
    dialect = "memodb"

    def __init__(self, broker: Broker, io: BrokerIO, options: ListenerOptions, max_payload: int) -> None:
        self._broker = broker
        self._io = io
        self._options = options
        self._max_payload = max_payload
        self._profile = WorkerProfile(
            lease=options.heartbeat_after + options.heartbeat_timeout,
            silent_while_busy=True,
            stuck_timeout=options.stuck_timeout,
            detach_timeout=options.detach_timeout,
            comes_back=True,
            pulls=True,  # a parked request asks for one job
        )
        self._remotes: dict[bytes, RemoteMemoDbWorker] = {}  # workers by their id
        self._heartbeats: Deadlines[RemoteMemoDbWorker] = (
            Deadlines()
        )  # when a parked worker gets HEARTBEAT instead of a job
        self._lost_readies: dict[Key, RemoteMemoDbWorker] = {}  # R61: may be repeated on another connection
        self._callers = Callers(self, broker, io, options, max_payload, self._remotes)

    # ---------------------------------------------------------------- calls from the runner

    def opened(self, peer: Connection, now: float) -> None:
        peer.remote = ConnectionRecord()
        self._callers.opened(peer)

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        assert type(message) is not TooLarge  # SP ends the connection instead (R80)
        route, body = message
        assert type(route) is bytes
        try:
            if not route:
                raise Malformed("no request id", "no request id within 8 words")
            if type(body) is not bytes or len(body) > WHOLE:
                request_hash = fingerprint(body)  # before `read`, which removes the header
                self._receive_parsed(peer, route, request_hash, read(body), now)
                return
            request_hash = hash(body)
            record: ConnectionRecord = peer.remote
            header = record.header
            if body.startswith(header):  # a header encodes its own end: nothing else can begin like this
                id, service, timeout = record.header_fields
                payload = body[len(header) :]
            else:
                plain = read_plain(body)
                if plain is None:
                    self._receive_parsed(peer, route, request_hash, read(body), now)
                    return
                id, service, timeout, payload = plain
                if not id or len(record.remotes) == 1:  # otherwise the next RESULT is another worker's
                    record.header = body[: len(body) - len(payload)]
                    record.header_fields = id, service, timeout
            if id:
                self._receive_worker(peer, route, request_hash, id, payload, False, now)
            else:
                self._callers.receive_job(peer, route, request_hash, service, timeout, payload, now)
        except Malformed as problem:
            self._io.bad_message(peer, problem.reason, problem.detail)

    def _receive_parsed(
        self, peer: Connection, route: bytes, request_hash: int, parsed: ParsedMessage, now: float
    ) -> None:
        if type(parsed) is messages.Job:
            if parsed.id:
                raise Malformed("unwanted id", f"JOB with an id of {len(parsed.id)} bytes; a caller has none")
            self._callers.receive_job(peer, route, request_hash, parsed.service, parsed.timeout, parsed.payload, now)
        elif type(parsed) is Result:
            self._receive_worker(peer, route, request_hash, parsed.id, parsed.payload, parsed.is_leaving, now)
        elif type(parsed) is Heartbeat:
            self._receive_worker(peer, route, request_hash, parsed.id, None, False, now)
        elif type(parsed) is Ready:
            self._receive_ready(peer, route, request_hash, parsed, now)
        else:
            raise Malformed("not for us", "DISCONNECT is sent by brokers only")

    def unsent(self, remote: RemoteWorker) -> int:
        peer = cast(RemoteMemoDbWorker, remote).peer
        return self._io.unsent(peer) if peer is not None else 0

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._give(effect.attempt, now)
        elif type(effect) is DeliverOutcome:
            self._callers.answer(effect, now)
        elif type(effect) is CancelAttempt:
            self._recall(effect.attempt, effect.reason, now)
        elif type(effect) is RemoveWorker:
            self._remove_worker(effect)
        # Acknowledge: callers of MemoDB cannot submit background jobs.

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        """Detach the workers of an ended connection and orphan its waiting calls: they may come back (R64)."""
        record: ConnectionRecord = peer.remote
        if record.remotes or record.waiting:
            workers, calls = len(record.remotes), len(record.waiting)
            self._io.remark("connection lost", peer=peer, detached_workers=workers, waiting_calls=calls)
        for remote in record.remotes:
            if peer.closed_in_order and remote.answer is not None:
                self._confirm(remote)  # it has the reply to its READY, and does not repeat it
            remote.peer = None
            remote.process, remote.left_at = peer.process, now
            self._broker.availability.detach(remote.worker, now)
            if not remote.is_confirmed:
                self._lost_readies[remote.key] = remote
        for attempt in unsent:
            assert isinstance(attempt, Attempt)
            self._take_back(attempt, now)
        self._callers.lost(peer, now)

    def tick(self, now: float) -> float:
        """Send HEARTBEAT to workers that have waited long enough, and drop expired replies."""
        for remote in self._heartbeats.due(now):
            if remote.answer is not None or remote.peer is None:
                continue  # it is busy or detached: the next `_park` sets the deadline again
            if remote.heartbeat_due > now:
                self._heartbeats.arm(remote, remote.heartbeat_due)
                continue
            if remote.worker.running:  # a job was dispatched to it in this iteration, and is the reply
                self._heartbeats.arm(remote, now + SOON)
                continue
            remote.answer = [write_heartbeat(remote.id)]
            self._io.send(remote.peer, [remote.route, *remote.answer])
            self._broker.availability.ask(remote.worker, 0, now)  # it gets nothing before its next request
        return min(self._heartbeats.next(), self._callers.answers.expire(now))

    # ---------------------------------------------------------------- messages of workers

    def _receive_ready(self, peer: Connection, route: bytes, request_hash: int, ready: Ready, now: float) -> None:
        if ready.id:
            raise Malformed("unwanted id", f"READY with an id of {len(ready.id)} bytes; the broker assigns ids")
        record: ConnectionRecord = peer.remote
        dead = record.dead.pop(route, None)
        if dead is not None and dead[0] == request_hash:  # the reply has this route, and no other request waits for one
            self._io.send(peer, [route, write_disconnect(dead[1])])
            return
        known = record.readies.get(route)
        if known is None and self._lost_readies:
            known = self._lost_readies.get(key_of(peer, route, request_hash))  # R61
            if known is not None and not may_be_back(known, peer):
                known = None
        if known is not None and known.request_hash == request_hash:
            self._receive_again(known, peer, route, now)
            return
        if known is not None:  # R69
            self._forget(known)
            self._broker.leave(known.worker, now, "its worker sent READY again")
        if not self._callers.make_room(peer, now):
            return
        remote = RemoteMemoDbWorker(self._broker.entropy.token(), peer, route, request_hash)
        name = _name_of(peer, remote.id)
        worker = self._broker.join(
            self, remote, name, ready.services, self._profile, now, peer.owner, origin=peer.label
        )
        if worker is None:
            self._refuse(peer, ready.services)
            return
        remote.worker = worker
        self._remotes[remote.id] = remote
        self._callers.worker_joined(remote)
        record.remotes[remote] = None
        record.readies[route] = remote
        self._park(remote, now)
        self._broker.idle(worker, now)

    def _refuse(self, peer: Connection, services: Sequence[str]) -> None:
        """Leave a READY without a reply: MemoDB has no message for a refusal. Without the right to join, the connection
        is closed too (R174)."""
        refusal, reason = join_refusal(peer.owner.principal, services, self._broker.policy)
        if refusal is RefusalReason.FORBIDDEN:
            self._io.close(peer, reason)
        else:
            self._io.remark("worker rejected", level="warning", peer=peer, services=list(services), reason=reason)

    def _receive_worker(
        self,
        peer: Connection,
        route: bytes,
        request_hash: int,
        id: bytes,
        result: Frame | None,
        is_leaving: bool,
        now: float,
    ) -> None:
        """Handle a RESULT, or a HEARTBEAT if `result` is None."""
        remote = self._remotes.get(id)
        # R66, T8: an id is valid only for its principal and at its address.
        if remote is None or remote.address != peer.address or remote.principal is not peer.owner.principal:
            if result is not None:
                self._broker.counters.late_results += 1
            self._broker.dispatch.removal.appeared(peer.owner.principal, self.dialect, _name_of(peer, id), now)
            self._io.send(peer, [route, write_disconnect(id)])
            return
        if request_hash == remote.request_hash and route[-4:] == remote.route[-4:]:
            self._receive_again(remote, peer, route, now)
            return
        if remote.peer is not peer and (route[-4:], request_hash) in remote.overtaken:
            return  # a repetition from an old connection of its worker; it has its reply
        if not remote.is_confirmed:
            self._confirm(remote)
        if remote.peer is not peer:
            self._move(remote, peer, route, request_hash)
        remote.route = route
        remote.request_hash = request_hash
        attempt = remote.attempt
        if result is not None:
            if attempt is not None:
                self._result(remote, attempt, result, is_leaving, now)
            else:
                self._broker.counters.late_results += 1
                self._resync(remote, "its worker sent a RESULT that was not due", now)  # R67
        elif attempt is not None:
            if attempt.over_at <= now and attempt.job.attempt is attempt:
                # The worker has stopped it at the time limit, which JOB told it, before this broker's own timer.
                self._broker.attempts.expire(attempt, now)
            self._resync(remote, "its worker sent HEARTBEAT instead of a result", now)  # R68
        else:
            record_heartbeat(remote.worker, "HEARTBEAT", now)
            self._park(remote, now)
            self._broker.availability.attach(remote.worker, now)

    def _result(
        self, remote: RemoteMemoDbWorker, attempt: Attempt, result: Frame, is_leaving: bool, now: float
    ) -> None:
        self._park(remote, now)
        if attempt.job.conversation is not None:
            from_worker(attempt, "RESULT", len(result), now)
        broker = self._broker
        if remote.worker.away_since != inf:
            broker.availability.attach(remote.worker, now)
        if is_leaving:
            broker.availability.drain(remote.worker, now)  # it gets no more jobs, and DISCONNECT after its result (R70)
        if len(result) > self._max_payload:
            reason = over_max_payload("its result", len(result), self._max_payload)
            broker.fail(attempt, reason, now)
        elif not broker.succeed(attempt, result, now):
            log_about_peer(self._io, remote.peer, "late result", worker=remote.worker.name, job=attempt.job.id.hex())

    def _receive_again(self, remote: RemoteMemoDbWorker, peer: Connection, route: bytes, now: float) -> None:
        """Handle a repetition of the last request (R60): no new action, but the worker may have moved."""
        if remote.peer is not peer:
            self._move(remote, peer, route, remote.request_hash)
            remote.is_replayed = True  # on one connection, a repeated reply never leaves before the first
        remote.route = route
        attempt = remote.attempt
        if attempt is not None and not remote.principal.may(WORK, attempt.job.service.name):
            self._resync(remote, "its principal lost the right to the service before it had the job", now)  # R174
            return
        if remote.answer is not None:
            self._broker.counters.replayed_answers += 1
            self._io.send(peer, [route, *remote.answer])
        else:
            self._heartbeats.arm(remote, remote.heartbeat_due)
        self._broker.availability.attach(remote.worker, now)

    def _resync(self, remote: RemoteMemoDbWorker, reason: str, now: float) -> None:
        """Send DISCONNECT, because worker and broker disagree on its state: it starts again with READY."""
        peer, route = remote.peer, remote.route
        self._forget(remote)
        log_about_peer(self._io, peer, "worker out of turn", worker=remote.worker.name, reason=reason)
        self._broker.leave(remote.worker, now, reason)
        assert peer is not None
        self._io.send(peer, [route, write_disconnect(remote.id)])

    # ---------------------------------------------------------------- workers join, move and leave

    def _park(self, remote: RemoteMemoDbWorker, now: float) -> None:
        """Keep the request until there is a job for it, or HEARTBEAT is due."""
        self._broker.availability.ask(remote.worker, 1, now)
        remote.answer = None
        remote.heartbeat_due = due = now + self._options.heartbeat_after
        if due < remote.alarm:
            self._heartbeats.arm(remote, due)

    def _confirm(self, remote: RemoteMemoDbWorker) -> None:
        """Record that the reply to READY has arrived, as a later request shows: READY cannot be repeated."""
        if not remote.is_confirmed:
            remote.is_confirmed = True
            self._drop_ready(remote)

    def _move(self, remote: RemoteMemoDbWorker, peer: Connection, route: bytes, request_hash: int) -> None:
        """Send further replies on another connection."""
        remote.turn_from(route[-4:], request_hash)
        self._drop_ready(remote)
        if remote.peer is not None:
            del remote.peer.remote.remotes[remote]
        peer.remote.remotes[remote] = None
        remote.peer = peer
        if not remote.is_confirmed:
            peer.remote.readies[route] = remote

    def _drop_ready(self, remote: RemoteMemoDbWorker) -> None:
        """Remove only this worker's entry: others may have used the same request id."""
        if remote.peer is None:
            if self._lost_readies.get(remote.key) is remote:
                del self._lost_readies[remote.key]
        elif remote.peer.remote.readies.get(remote.route) is remote:
            del remote.peer.remote.readies[remote.route]

    def _forget(self, remote: RemoteMemoDbWorker) -> None:
        """Remove a worker. Later requests with its id get DISCONNECT."""
        del self._remotes[remote.id]
        self._callers.worker_left(remote)
        self._heartbeats.disarm(remote)
        if remote.peer is not None:
            record: ConnectionRecord = remote.peer.remote
            del record.remotes[remote]
            if not remote.is_confirmed:
                record.bury(remote)
        self._confirm(remote)
        remote.peer = None
        remote.worker.forget_remote()

    def _recall(self, attempt: Attempt, reason: str, now: float) -> None:
        """Remove a worker whose attempt timed out. A worker whose job was cancelled may finish it: it is stuck."""
        remote = cast("RemoteMemoDbWorker | None", attempt.worker.remote)
        if remote is None or self._remotes.get(remote.id) is not remote:
            return
        if now >= attempt.due and remote.attempt is attempt:
            self._forget(remote)
            self._io.remark("attempt timed out", level="warning", worker=remote.worker.name, reason=reason)
            self._broker.leave(remote.worker, now, reason)

    def _remove_worker(self, effect: RemoveWorker) -> None:
        remote = cast("RemoteMemoDbWorker | None", effect.worker.remote)
        if remote is None or self._remotes.get(remote.id) is not remote:
            return
        peer, route = remote.peer, remote.route
        self._forget(remote)
        if peer is not None and remote.answer is None:
            self._io.send(peer, [route, write_disconnect(remote.id)])

    # ---------------------------------------------------------------- jobs

    def _give(self, attempt: Attempt, now: float) -> None:
        remote = cast(RemoteMemoDbWorker, attempt.worker.remote)
        if remote.peer is None:  # its connection ended in this iteration: it is still waiting
            self._broker.availability.ask(remote.worker, 1, now)
            self._broker.attempts.undelivered(attempt, now)
            return
        remote.is_replayed = False
        job = attempt.job
        job_options = job.options
        if job_options is not remote.options or job.service is not remote.service or job_options.job_timeout == inf:
            remote.options, remote.service = job_options, job.service
            remote.header = write_job(remote.id, job.service.name, milliseconds(job))
        remote.answer = [remote.header, job.payload]
        if job.conversation is not None:
            to_worker(attempt, "JOB", len(remote.header) + len(job.payload), now)
        self._io.send(remote.peer, [remote.route, remote.header, job.payload], attempt)

    def _take_back(self, attempt: Attempt, now: float) -> None:
        """Undo the dispatch of a job that was never sent: the worker still waits for a reply (R8)."""
        remote = cast("RemoteMemoDbWorker | None", attempt.worker.remote)
        if remote is None:  # it has left meanwhile
            return
        is_known = self._remotes.get(remote.id) is remote
        if is_known and remote.attempt is attempt and remote.peer is None and not remote.is_replayed:
            self._park(remote, now)
            self._broker.attempts.undelivered(attempt, now)


def _name_of(peer: Connection, id: bytes) -> str:
    """Return the name of a worker: that of its first connection, and the beginning of its id."""
    return f"{peer.label} {id[:4].hex()}"
