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
from dragoman.dialects.memodb.messages import Heartbeat, Ready, Result, Word
from dragoman.dialects.memodb.options import ListenerOptions
from dragoman.dialects.memodb.records import (
    WHOLE,
    ConnectionRecord,
    Key,
    MemoDbWorker,
    fingerprint,
    grumble,
    may_be_back,
)

SOON: Final = 0.1  # seconds


class MemoDbBrokerSide(BrokerSide):
    dialect = "memodb"

    def __init__(self, broker: Broker, line: BrokerIO, options: ListenerOptions, max_payload: int) -> None:
        self._broker = broker
        self._line = line
        self._options = options
        self._max_payload = max_payload
        self._terms = WorkerProfile(
            lease=options.heartbeat_after + options.heartbeat_timeout,
            silent_while_busy=True,
            unproven_limit=options.unproven_limit,
            detach_timeout=options.detach_timeout,
            comes_back=True,
            pulls=True,  # a parked request asks for one job
        )
        self._guests: dict[bytes, MemoDbWorker] = {}  # workers by their id
        self._heartbeats: Deadlines[MemoDbWorker] = (
            Deadlines()
        )  # parked workers: when they get a HEARTBEAT instead of a job
        self._lost_readies: dict[Key, MemoDbWorker] = {}  # R61: may come again on another connection
        self._callers = Callers(self, broker, line, options, max_payload, self._guests)

    # ---------------------------------------------------------------- the seam

    def opened(self, peer: Connection, now: float) -> None:
        peer.guest = ConnectionRecord()

    def hear(self, peer: Connection, message: Message | TooLarge, now: float) -> None:
        assert type(message) is not TooLarge  # SP ends the connection instead (R80)
        route, body = message
        assert type(route) is bytes
        try:
            if not route:
                raise Malformed("no request id", "no request id within 8 words")
            if type(body) is not bytes or len(body) > WHOLE:
                mark = fingerprint(body)  # before it is read, for reading takes the header off
                self._hear_word(peer, route, mark, read(body), now)
                return
            mark = hash(body)
            contacts: ConnectionRecord = peer.guest
            header = contacts.header
            if body.startswith(header):  # a header says itself where it ends: nothing else can begin like this
                id, service, timeout = contacts.said
                payload = body[len(header) :]
            else:
                plain = read_plain(body)
                if plain is None:
                    self._hear_word(peer, route, mark, read(body), now)
                    return
                id, service, timeout, payload = plain
                if not id or len(contacts.guests) == 1:  # else the next RESULT will be another worker's
                    contacts.header = body[: len(body) - len(payload)]
                    contacts.said = id, service, timeout
            if id:
                self._hear_worker(peer, route, mark, id, payload, False, now)
            else:
                self._callers.hear_job(peer, route, mark, service, timeout, payload, now)
        except Malformed as problem:
            self._line.bad_message(peer, problem.reason, problem.detail)

    def _hear_word(self, peer: Connection, route: bytes, mark: int, word: Word, now: float) -> None:
        if type(word) is messages.Job:
            if word.id:
                raise Malformed("unwanted id", f"JOB with an id of {len(word.id)} bytes; a caller has none")
            self._callers.hear_job(peer, route, mark, word.service, word.timeout, word.payload, now)
        elif type(word) is Result:
            self._hear_worker(peer, route, mark, word.id, word.payload, word.is_leaving, now)
        elif type(word) is Heartbeat:
            self._hear_worker(peer, route, mark, word.id, None, False, now)
        elif type(word) is Ready:
            self._hear_ready(peer, route, mark, word, now)
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
        contacts: ConnectionRecord = peer.guest
        if contacts.guests or contacts.waiting:
            workers, calls = len(contacts.guests), len(contacts.waiting)
            self._line.remark("connection lost", peer=peer, detached_workers=workers, waiting_calls=calls)
        for guest in contacts.guests:
            if peer.closed_in_order and guest.answer is not None:
                self._confirm(guest)  # it has the answer to its READY, and does not ask again
            guest.peer = None
            guest.process, guest.left_at = peer.process, now
            self._broker.detach(guest.worker, now)
            if not guest.is_confirmed:
                self._lost_readies[guest.key] = guest
        for attempt in unsent:
            assert isinstance(attempt, Attempt)
            self._take_back(attempt, now)
        self._callers.lost(peer, now)

    def tick(self, now: float) -> float:
        """Workers that have waited long enough get a HEARTBEAT, answers kept long enough are forgotten."""
        for guest in self._heartbeats.due(now):
            if guest.answer is not None or guest.peer is None:
                continue  # it is at work, or out of reach: the next parking reminds us again
            if guest.heartbeat_due > now:
                self._heartbeats.arm(guest, guest.heartbeat_due)
                continue
            if guest.worker.running:  # a job was decided for it in this very turn, and that is its answer
                self._heartbeats.arm(guest, now + SOON)
                continue
            guest.answer = [write_heartbeat(guest.id)]
            self._line.send(guest.peer, [guest.route, *guest.answer])
            self._broker.ask(guest.worker, 0, now)  # it gets nothing before it has asked again
        return min(self._heartbeats.next(), self._callers.answers.expire(now))

    # ---------------------------------------------------------------- what workers say

    def _hear_ready(self, peer: Connection, route: bytes, mark: int, ready: Ready, now: float) -> None:
        if ready.id:
            raise Malformed("unwanted id", f"READY with an id of {len(ready.id)} bytes; we give the ids")
        contacts: ConnectionRecord = peer.guest
        dead = contacts.dead.pop(route, None)
        if dead is not None and dead[0] == mark:  # it was answered by this route, and nobody waits for another answer
            self._line.send(peer, [route, write_disconnect(dead[1])])
            return
        known = contacts.readies.get(route)
        if known is None and self._lost_readies:
            known = self._lost_readies.get((peer.address, route[-4:], mark, peer.process))  # R61
            if known is not None and not may_be_back(known, peer):
                known = None
        if known is not None and known.mark == mark:
            self._hear_again(known, peer, route, now)
            return
        if known is not None:  # R69
            self._forget(known)
            self._broker.leave(known.worker, now, "its worker said READY anew")
        if not self._callers.make_room(peer, now):
            return
        guest = MemoDbWorker(self._broker.entropy.token(), peer, route, mark)
        name = f"{peer.label} {guest.id[:4].hex()}"
        worker = self._broker.join(self, guest, name, ready.services, self._terms, now, origin=peer.label)
        if worker is None:
            self._line.remark("worker refused", level="warning", peer=peer, services=list(ready.services))
            return
        guest.worker = worker
        self._guests[guest.id] = guest
        contacts.guests[guest] = None
        contacts.readies[route] = guest
        self._park(guest, now)
        self._broker.idle(worker, now)

    def _hear_worker(
        self, peer: Connection, route: bytes, mark: int, id: bytes, result: Frame | None, is_leaving: bool, now: float
    ) -> None:
        """RESULT, or HEARTBEAT if there is none."""
        guest = self._guests.get(id)
        if guest is None or guest.address != peer.address:  # R66, T8: an id is good where it was given
            if result is not None:
                self._broker.counters.late_results += 1
            self._line.send(peer, [route, write_disconnect(id)])
            return
        if mark == guest.mark and route[-4:] == guest.route[-4:]:
            self._hear_again(guest, peer, route, now)
            return
        if guest.peer is not peer and (route[-4:], mark) in guest.overtaken:
            return  # a copy by a connection that its worker has left: answered long ago
        if not guest.is_confirmed:
            self._confirm(guest)
        if guest.peer is not peer:
            self._move(guest, peer, route, mark)
        guest.route = route
        guest.mark = mark
        attempt = guest.attempt
        if result is not None:
            if attempt is not None:
                self._result(guest, attempt, result, is_leaving, now)
            else:
                self._broker.counters.late_results += 1
                self._resync(guest, "its worker sent a RESULT that was not due", now)  # R67
        elif attempt is not None:
            self._resync(guest, "its worker gave it up: HEARTBEAT instead of a result", now)  # R68
        else:
            self._park(guest, now)
            self._broker.attach(guest.worker, now)

    def _result(self, guest: MemoDbWorker, attempt: Attempt, result: Frame, is_leaving: bool, now: float) -> None:
        self._park(guest, now)
        broker = self._broker
        if guest.worker.away_since != inf:
            broker.attach(guest.worker, now)
        if is_leaving:
            broker.drain(guest.worker, now)  # so that it gets nothing more, and DISCONNECT behind its result (R70)
        if len(result) > self._max_payload:
            reason = over_max_payload("its result", len(result), self._max_payload)
            broker.fail(attempt, reason, now)
        elif not broker.succeed(attempt, result, now):
            grumble(self._line, guest.peer, "late result", worker=guest.worker.name, job=attempt.job.id.hex())

    def _hear_again(self, guest: MemoDbWorker, peer: Connection, route: bytes, now: float) -> None:
        """Its last request once more (R60): nothing new happens, but it may have moved."""
        if guest.peer is not peer:
            self._move(guest, peer, route, guest.mark)
            guest.is_replayed = True  # by one connection, a copy of an answer never leaves before the first
        guest.route = route
        if guest.answer is not None:
            self._broker.counters.replayed_answers += 1
            self._line.send(peer, [route, *guest.answer])
        else:
            self._heartbeats.arm(guest, guest.heartbeat_due)
        self._broker.attach(guest.worker, now)

    def _resync(self, guest: MemoDbWorker, reason: str, now: float) -> None:
        """We do not agree on where we are: it starts anew."""
        peer, route = guest.peer, guest.route
        self._forget(guest)
        grumble(self._line, peer, "worker out of turn", worker=guest.worker.name, reason=reason)
        self._broker.leave(guest.worker, now, reason)
        assert peer is not None
        self._line.send(peer, [route, write_disconnect(guest.id)])

    # ---------------------------------------------------------------- workers come, move and go

    def _park(self, guest: MemoDbWorker, now: float) -> None:
        """Its request waits for a job, or for a HEARTBEAT."""
        self._broker.ask(guest.worker, 1, now)
        guest.answer = None
        guest.heartbeat_due = due = now + self._options.heartbeat_after
        if due < guest.alarm:
            self._heartbeats.arm(guest, due)

    def _confirm(self, guest: MemoDbWorker) -> None:
        """A later request shows that the answer to its READY has arrived: that READY cannot come again."""
        if not guest.is_confirmed:
            guest.is_confirmed = True
            self._drop_ready(guest)

    def _move(self, guest: MemoDbWorker, peer: Connection, route: bytes, mark: int) -> None:
        """Its answers go to another connection from now on."""
        guest.turn_from(route[-4:], mark)
        self._drop_ready(guest)
        if guest.peer is not None:
            del guest.peer.guest.guests[guest]
        peer.guest.guests[guest] = None
        guest.peer = peer
        if not guest.is_confirmed:
            peer.guest.readies[route] = guest

    def _drop_ready(self, guest: MemoDbWorker) -> None:
        """Its own entry only: others may have asked under the same request id."""
        if guest.peer is None:
            if self._lost_readies.get(guest.key) is guest:
                del self._lost_readies[guest.key]
        elif guest.peer.guest.readies.get(guest.route) is guest:
            del guest.peer.guest.readies[guest.route]

    def _forget(self, guest: MemoDbWorker) -> None:
        """Its id is dead: whatever still comes under it gets DISCONNECT."""
        del self._guests[guest.id]
        self._heartbeats.disarm(guest)
        if guest.peer is not None:
            contacts: ConnectionRecord = guest.peer.guest
            del contacts.guests[guest]
            if not guest.is_confirmed:
                contacts.bury(guest)
        self._confirm(guest)
        guest.peer = None

    def _recall(self, attempt: Attempt, reason: str, now: float) -> None:
        """A worker that overran its job's time is given up. One whose job was cancelled may end it: it is unproven."""
        guest = cast(MemoDbWorker, attempt.worker.remote)
        if now >= attempt.due and guest.attempt is attempt:
            self._forget(guest)
            self._line.remark("worker gave no result in time", level="warning", worker=guest.worker.name, reason=reason)
            self._broker.leave(guest.worker, now, reason)

    def _dismiss(self, effect: RemoveWorker) -> None:
        guest = cast(MemoDbWorker, effect.worker.remote)
        if self._guests.get(guest.id) is not guest:
            return
        peer, route = guest.peer, guest.route
        self._forget(guest)
        if peer is not None and guest.answer is None:
            self._line.send(peer, [route, write_disconnect(guest.id)])

    # ---------------------------------------------------------------- jobs go out

    def _give(self, attempt: Attempt, now: float) -> None:
        guest = cast(MemoDbWorker, attempt.worker.remote)
        if guest.peer is None:  # its connection ended in this very turn: it waits on, wherever it is
            self._broker.ask(guest.worker, 1, now)
            self._broker.undelivered(attempt, now)
            return
        guest.is_replayed = False
        job = attempt.job
        wishes = job.wishes
        if wishes is not guest.wishes or job.service is not guest.service or wishes.job_timeout == inf:
            guest.wishes, guest.service = wishes, job.service
            guest.header = write_job(guest.id, job.service.name, milliseconds(job))
        guest.answer = [guest.header, job.payload]
        self._line.send(guest.peer, [guest.route, guest.header, job.payload], attempt)

    def _take_back(self, attempt: Attempt, now: float) -> None:
        """The answer with this job never left us: the worker still waits for one, wherever it is (R8)."""
        guest = cast(MemoDbWorker, attempt.worker.remote)
        is_known = self._guests.get(guest.id) is guest
        if is_known and guest.attempt is attempt and guest.peer is None and not guest.is_replayed:
            self._park(guest, now)
            self._broker.undelivered(attempt, now)
