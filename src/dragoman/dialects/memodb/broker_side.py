"""The broker's side of MemoDB: workers and callers ask, we answer when there is something to say.

Any number of both share a connection; a request is answered by the route it came with, and until then it is *parked*.
NNG repeats a request by itself, on a timer and after a reconnect, under the same request id. Taken for a new one, a
repeated RESULT would be booked on the worker's next job. So the care of this file and of `callers.py` is to know a
request again (R60 to R65): a worker's by its id, a caller's by its connection, both by the request id and by an imprint
of the whole message.
What was answered is said again, byte for byte; what was not waits on at the new place. On a new connection that holds
only for one that can be the same client's: `requests.py:may_be_back`, and `lost` for answers that were received.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import CancelAttempt, DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.infinity import inf
from dragoman.core.model import Attempt
from dragoman.core.options import WorkerProfile
from dragoman.core.oversize import over_max_payload
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
    MemoDbWorker,
    fingerprint,
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
        self._remotes: dict[bytes, MemoDbWorker] = {}  # workers by their id
        self._heartbeats: Deadlines[MemoDbWorker] = (
            Deadlines()
        )  # parked workers: when they get a HEARTBEAT instead of a job
        self._lost_readies: dict[Key, MemoDbWorker] = {}  # R61: may come again on another connection
        self._callers = Callers(self, broker, io, options, max_payload, self._remotes)

    # ---------------------------------------------------------------- the seam

    def opened(self, peer: Connection, now: float) -> None:
        peer.remote = ConnectionRecord()

    def receive(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        assert type(message) is not TooLarge  # SP ends the connection instead (R80)
        route, body = message
        assert type(route) is bytes
        try:
            if not route:
                raise Malformed("no request id", "no request id within 8 words")
            if type(body) is not bytes or len(body) > WHOLE:
                request_hash = fingerprint(body)  # before it is read, for reading takes the header off
                self._receive_parsed(peer, route, request_hash, read(body), now)
                return
            request_hash = hash(body)
            contacts: ConnectionRecord = peer.remote
            header = contacts.header
            if body.startswith(header):  # a header says itself where it ends: nothing else can begin like this
                id, service, timeout = contacts.said
                payload = body[len(header) :]
            else:
                plain = read_plain(body)
                if plain is None:
                    self._receive_parsed(peer, route, request_hash, read(body), now)
                    return
                id, service, timeout, payload = plain
                if not id or len(contacts.remotes) == 1:  # else the next RESULT will be another worker's
                    contacts.header = body[: len(body) - len(payload)]
                    contacts.said = id, service, timeout
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
            raise Malformed("not for us", "DISCONNECT is the broker's to say")

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._give(effect.attempt, now)
        elif type(effect) is DeliverOutcome:
            self._callers.answer(effect, now)
        elif type(effect) is CancelAttempt:
            self._recall(effect.attempt, effect.reason, now)
        elif type(effect) is RemoveWorker:
            self._dismiss(effect)
        # Accept: nobody here asks for background jobs.

    def lost(self, peer: Connection, unsent: Sequence[object], now: float) -> None:
        """Whoever shared it may come back on another: workers are detached, waiting calls orphaned (R64)."""
        contacts: ConnectionRecord = peer.remote
        if contacts.remotes or contacts.waiting:
            workers, calls = len(contacts.remotes), len(contacts.waiting)
            self._io.remark("connection lost", peer=peer, detached_workers=workers, waiting_calls=calls)
        for remote in contacts.remotes:
            if peer.closed_in_order and remote.answer is not None:
                self._confirm(remote)  # it has the answer to its READY, and does not ask again
            remote.peer = None
            remote.process, remote.left_at = peer.process, now
            self._broker.detach(remote.worker, now)
            if not remote.is_confirmed:
                self._lost_readies[remote.key] = remote
        for attempt in unsent:
            assert isinstance(attempt, Attempt)
            self._take_back(attempt, now)
        self._callers.lost(peer, now)

    def tick(self, now: float) -> float:
        """Workers that have waited long enough get a HEARTBEAT, answers kept long enough are forgotten."""
        for remote in self._heartbeats.due(now):
            if remote.answer is not None or remote.peer is None:
                continue  # it is at work, or out of reach: the next parking reminds us again
            if remote.heartbeat_due > now:
                self._heartbeats.arm(remote, remote.heartbeat_due)
                continue
            if remote.worker.running:  # a job was decided for it in this very turn, and that is its answer
                self._heartbeats.arm(remote, now + SOON)
                continue
            remote.answer = [write_heartbeat(remote.id)]
            self._io.send(remote.peer, [remote.route, *remote.answer])
            self._broker.ask(remote.worker, 0, now)  # it gets nothing before it has asked again
        return min(self._heartbeats.next(), self._callers.answers.expire(now))

    # ---------------------------------------------------------------- what workers say

    def _receive_ready(self, peer: Connection, route: bytes, request_hash: int, ready: Ready, now: float) -> None:
        if ready.id:
            raise Malformed("unwanted id", f"READY with an id of {len(ready.id)} bytes; we give the ids")
        contacts: ConnectionRecord = peer.remote
        dead = contacts.dead.pop(route, None)
        if (
            dead is not None and dead[0] == request_hash
        ):  # it was answered by this route, and nobody waits for another answer
            self._io.send(peer, [route, write_disconnect(dead[1])])
            return
        known = contacts.readies.get(route)
        if known is None and self._lost_readies:
            known = self._lost_readies.get((peer.address, route[-4:], request_hash, peer.process))  # R61
            if known is not None and not may_be_back(known, peer):
                known = None
        if known is not None and known.request_hash == request_hash:
            self._receive_again(known, peer, route, now)
            return
        if known is not None:  # R69
            self._forget(known)
            self._broker.leave(known.worker, now, "its worker said READY anew")
        if not self._callers.make_room(peer, now):
            return
        remote = MemoDbWorker(self._broker.entropy.token(), peer, route, request_hash)
        name = f"{peer.label} {remote.id[:4].hex()}"
        worker = self._broker.join(self, remote, name, ready.services, self._profile, now, origin=peer.label)
        if worker is None:
            self._io.remark("worker refused", level="warning", peer=peer, services=list(ready.services))
            return
        remote.worker = worker
        self._remotes[remote.id] = remote
        contacts.remotes[remote] = None
        contacts.readies[route] = remote
        self._park(remote, now)
        self._broker.idle(worker, now)

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
        """RESULT, or HEARTBEAT if there is none."""
        remote = self._remotes.get(id)
        if remote is None or remote.address != peer.address:  # R66, T8: an id is good where it was given
            if result is not None:
                self._broker.counters.late_results += 1
            self._io.send(peer, [route, write_disconnect(id)])
            return
        if request_hash == remote.request_hash and route[-4:] == remote.route[-4:]:
            self._receive_again(remote, peer, route, now)
            return
        if remote.peer is not peer and (route[-4:], request_hash) in remote.overtaken:
            return  # a copy by a connection that its worker has left: answered long ago
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
            self._resync(remote, "its worker gave it up: HEARTBEAT instead of a result", now)  # R68
        else:
            self._park(remote, now)
            self._broker.attach(remote.worker, now)

    def _result(self, remote: MemoDbWorker, attempt: Attempt, result: Frame, is_leaving: bool, now: float) -> None:
        self._park(remote, now)
        broker = self._broker
        if remote.worker.away_since != inf:
            broker.attach(remote.worker, now)
        if is_leaving:
            broker.drain(remote.worker, now)  # so that it gets nothing more, and DISCONNECT behind its result (R70)
        if len(result) > self._max_payload:
            reason = over_max_payload("its result", len(result), self._max_payload)
            broker.fail(attempt, reason, now)
        elif not broker.succeed(attempt, result, now):
            log_about_peer(self._io, remote.peer, "late result", worker=remote.worker.name, job=attempt.job.id.hex())

    def _receive_again(self, remote: MemoDbWorker, peer: Connection, route: bytes, now: float) -> None:
        """Its last request once more (R60): nothing new happens, but it may have moved."""
        if remote.peer is not peer:
            self._move(remote, peer, route, remote.request_hash)
            remote.is_replayed = True  # by one connection, a copy of an answer never leaves before the first
        remote.route = route
        if remote.answer is not None:
            self._broker.counters.replayed_answers += 1
            self._io.send(peer, [route, *remote.answer])
        else:
            self._heartbeats.arm(remote, remote.heartbeat_due)
        self._broker.attach(remote.worker, now)

    def _resync(self, remote: MemoDbWorker, reason: str, now: float) -> None:
        """We do not agree on where we are: it starts anew."""
        peer, route = remote.peer, remote.route
        self._forget(remote)
        log_about_peer(self._io, peer, "worker out of turn", worker=remote.worker.name, reason=reason)
        self._broker.leave(remote.worker, now, reason)
        assert peer is not None
        self._io.send(peer, [route, write_disconnect(remote.id)])

    # ---------------------------------------------------------------- workers come, move and go

    def _park(self, remote: MemoDbWorker, now: float) -> None:
        """Its request waits for a job, or for a HEARTBEAT."""
        self._broker.ask(remote.worker, 1, now)
        remote.answer = None
        remote.heartbeat_due = due = now + self._options.heartbeat_after
        if due < remote.alarm:
            self._heartbeats.arm(remote, due)

    def _confirm(self, remote: MemoDbWorker) -> None:
        """A later request shows that the answer to its READY has arrived: that READY cannot come again."""
        if not remote.is_confirmed:
            remote.is_confirmed = True
            self._drop_ready(remote)

    def _move(self, remote: MemoDbWorker, peer: Connection, route: bytes, request_hash: int) -> None:
        """Its answers go to another connection from now on."""
        remote.turn_from(route[-4:], request_hash)
        self._drop_ready(remote)
        if remote.peer is not None:
            del remote.peer.remote.remotes[remote]
        peer.remote.remotes[remote] = None
        remote.peer = peer
        if not remote.is_confirmed:
            peer.remote.readies[route] = remote

    def _drop_ready(self, remote: MemoDbWorker) -> None:
        """Its own entry only: others may have asked under the same request id."""
        if remote.peer is None:
            if self._lost_readies.get(remote.key) is remote:
                del self._lost_readies[remote.key]
        elif remote.peer.remote.readies.get(remote.route) is remote:
            del remote.peer.remote.readies[remote.route]

    def _forget(self, remote: MemoDbWorker) -> None:
        """Its id is dead: whatever still comes under it gets DISCONNECT."""
        del self._remotes[remote.id]
        self._heartbeats.disarm(remote)
        if remote.peer is not None:
            contacts: ConnectionRecord = remote.peer.remote
            del contacts.remotes[remote]
            if not remote.is_confirmed:
                contacts.bury(remote)
        self._confirm(remote)
        remote.peer = None

    def _recall(self, attempt: Attempt, reason: str, now: float) -> None:
        """A worker that overran its job's time is given up. One whose job was cancelled may end it: it is unproven."""
        remote = cast(MemoDbWorker, attempt.worker.remote)
        if now >= attempt.due and remote.attempt is attempt:
            self._forget(remote)
            self._io.remark("worker gave no result in time", level="warning", worker=remote.worker.name, reason=reason)
            self._broker.leave(remote.worker, now, reason)

    def _dismiss(self, effect: RemoveWorker) -> None:
        remote = cast(MemoDbWorker, effect.worker.remote)
        if self._remotes.get(remote.id) is not remote:
            return
        peer, route = remote.peer, remote.route
        self._forget(remote)
        if peer is not None and remote.answer is None:
            self._io.send(peer, [route, write_disconnect(remote.id)])

    # ---------------------------------------------------------------- jobs go out

    def _give(self, attempt: Attempt, now: float) -> None:
        remote = cast(MemoDbWorker, attempt.worker.remote)
        if remote.peer is None:  # its connection ended in this very turn: it waits on, wherever it is
            self._broker.ask(remote.worker, 1, now)
            self._broker.undelivered(attempt, now)
            return
        remote.is_replayed = False
        job = attempt.job
        job_options = job.options
        if job_options is not remote.options or job.service is not remote.service or job_options.job_timeout == inf:
            remote.options, remote.service = job_options, job.service
            remote.header = write_job(remote.id, job.service.name, milliseconds(job))
        remote.answer = [remote.header, job.payload]
        self._io.send(remote.peer, [remote.route, remote.header, job.payload], attempt)

    def _take_back(self, attempt: Attempt, now: float) -> None:
        """The answer with this job never left us: the worker still waits for one, wherever it is (R8)."""
        remote = cast(MemoDbWorker, attempt.worker.remote)
        is_known = self._remotes.get(remote.id) is remote
        if is_known and remote.attempt is attempt and remote.peer is None and not remote.is_replayed:
            self._park(remote, now)
            self._broker.undelivered(attempt, now)
