"""The broker's side of MemoDB: workers and callers ask, we answer when there is something to say.

Any number of both share a connection; a request is answered by the route it came with, and until then it is *parked*.
NNG repeats a request by itself, on a timer and after a reconnect, under the same request id. Taken for a new one, a
repeated RESULT would be booked on the worker's next job. So this file's care is to know a request again (R60 to R65):
a worker's by its id, a caller's by its connection, both by the request id and by an imprint of the whole message.
What was answered is said again, byte for byte; what was not waits on at the new place. On a new connection that holds
only for one that can be the same client's: `requests.py:may_be_back`, and `lost` for answers that were received.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import Answer, Dismiss, Effect, Give, Recall
from dragoman.core.infinity import inf
from dragoman.core.model import CANCELLED, DONE, REFUSED, Attempt, Job, Terms, Wishes
from dragoman.core.oversize import over_max_payload
from dragoman.dialects.memodb import messages
from dragoman.dialects.memodb.answers import Answers
from dragoman.dialects.memodb.codec import read, read_plain, write_disconnect, write_heartbeat, write_job, write_result
from dragoman.dialects.memodb.messages import Heartbeat, Ready, Result, Word
from dragoman.dialects.memodb.options import ListenerOptions
from dragoman.dialects.memodb.requests import WHOLE, Call, Contacts, Guest, Key, imprint, may_be_back
from dragoman.dialects.seam import Line, Peer, Session

MAX_TIMEOUT: Final = 86_400_000  # milliseconds: a day (R72)
ENDLESS: Final = -1
TIMEOUTS_KEPT: Final = 1024  # different ones
SOON: Final = 0.1  # seconds
RESULT_TO_CALLER: Final = write_result(b"")


class MemoDbSession(Session):
    dialect = "memodb"

    def __init__(self, broker: Broker, line: Line, options: ListenerOptions, max_payload: int) -> None:
        self._broker = broker
        self._line = line
        self._options = options
        self._max_payload = max_payload
        self._terms = Terms(
            lease=options.heartbeat_after + options.heartbeat_timeout,
            silent_while_busy=True,
            unproven_limit=options.unproven_limit,
            detach_timeout=options.detach_timeout,
            comes_back=True,
        )
        self._wishes: dict[int, Wishes] = {}  # by the timeout on the wire
        self._guests: dict[bytes, Guest] = {}  # workers by their id
        self._heartbeats: Deadlines[Guest] = Deadlines()  # parked workers: when they get a HEARTBEAT instead of a job
        self._lost_readies: dict[Key, Guest] = {}  # R61: may come again on another connection
        self._orphans: dict[Key, Call] = {}  # R62: calls whose connection is gone
        self._waiting = 0  # calls without an answer
        self._answers = Answers(options.keep_answers, options.max_kept_bytes, self._forget_answer)

    # ---------------------------------------------------------------- the seam

    def opened(self, peer: Peer, now: float) -> None:
        peer.guest = Contacts()

    def hear(self, peer: Peer, message: Message | TooLarge, now: float) -> None:
        assert type(message) is not TooLarge  # SP ends the connection instead (R80)
        route, body = message
        assert type(route) is bytes
        try:
            if not route:
                raise Malformed("no request id", "no request id within 8 words")
            if type(body) is not bytes or len(body) > WHOLE:
                mark = imprint(body)  # before it is read, for reading takes the header off
                self._hear_word(peer, route, mark, read(body), now)
                return
            mark = hash(body)
            contacts: Contacts = peer.guest
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
                self._hear_job(peer, route, mark, service, timeout, payload, now)
        except Malformed as problem:
            self._line.bad_message(peer, problem.reason, problem.detail)

    def _hear_word(self, peer: Peer, route: bytes, mark: int, word: Word, now: float) -> None:
        if type(word) is messages.Job:
            if word.id:
                raise Malformed("unwanted id", f"JOB with an id of {len(word.id)} bytes; a caller has none")
            self._hear_job(peer, route, mark, word.service, word.timeout, word.payload, now)
        elif type(word) is Result:
            self._hear_worker(peer, route, mark, word.id, word.payload, word.is_leaving, now)
        elif type(word) is Heartbeat:
            self._hear_worker(peer, route, mark, word.id, None, False, now)
        elif type(word) is Ready:
            self._hear_ready(peer, route, mark, word, now)
        else:
            raise Malformed("not for us", "DISCONNECT is the broker's to say")

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is Give:
            self._give(effect.attempt, now)
        elif type(effect) is Answer:
            self._answer(effect, now)
        elif type(effect) is Recall:
            self._recall(effect.attempt, effect.reason, now)
        elif type(effect) is Dismiss:
            self._dismiss(effect)
        # Accept: nobody here asks for background jobs.

    def lost(self, peer: Peer, unsent: Sequence[object], now: float) -> None:
        """Whoever shared it may come back on another: workers are detached, waiting calls orphaned (R64)."""
        contacts: Contacts = peer.guest
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
        for call in (*contacts.waiting.values(), *contacts.answered.values()):
            if peer.closed_in_order and call.is_answered:
                self._answers.drop(call)  # its caller has the answer: whoever asks for the same now is another
                continue
            call.peer = None
            call.process, call.left_at = peer.process, now
            self._orphans[call.key] = call
            self._broker.caller_away(call, now)

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
            self._broker.detach(guest.worker, now)  # it gets nothing before it has asked again
        return min(self._heartbeats.next(), self._answers.expire(now))

    # ---------------------------------------------------------------- what workers say

    def _hear_ready(self, peer: Peer, route: bytes, mark: int, ready: Ready, now: float) -> None:
        if ready.id:
            raise Malformed("unwanted id", f"READY with an id of {len(ready.id)} bytes; we give the ids")
        contacts: Contacts = peer.guest
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
        if not self._make_room(peer, now):
            return
        guest = Guest(self._broker.entropy.token(), peer, route, mark)
        name = f"{peer.label} {guest.id[:4].hex()}"
        worker = self._broker.join(self, guest, name, ready.services, self._terms, now)
        if worker is None:
            self._line.remark("worker refused", level="warning", peer=peer, services=list(ready.services))
            return
        guest.worker = worker
        self._guests[guest.id] = guest
        contacts.guests[guest] = None
        contacts.readies[route] = guest
        self._line.remark("worker joined", peer=peer, worker=name, services=list(ready.services))
        self._park(guest, now)
        self._broker.idle(worker, now)

    def _hear_worker(
        self, peer: Peer, route: bytes, mark: int, id: bytes, result: Frame | None, is_leaving: bool, now: float
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

    def _result(self, guest: Guest, attempt: Attempt, result: Frame, is_leaving: bool, now: float) -> None:
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
            self._grumble(guest.peer, "late result", worker=guest.worker.name, job=attempt.job.id.hex())

    def _hear_again(self, guest: Guest, peer: Peer, route: bytes, now: float) -> None:
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
        if guest.answer is None or guest.attempt is not None:
            self._broker.attach(guest.worker, now)
        else:
            self._broker.seen(guest.worker, now)

    def _resync(self, guest: Guest, reason: str, now: float) -> None:
        """We do not agree on where we are: it starts anew."""
        peer, route = guest.peer, guest.route
        self._forget(guest)
        self._grumble(peer, "worker out of turn", worker=guest.worker.name, reason=reason)
        self._broker.leave(guest.worker, now, reason)
        assert peer is not None
        self._line.send(peer, [route, write_disconnect(guest.id)])

    # ---------------------------------------------------------------- workers come, move and go

    def _park(self, guest: Guest, now: float) -> None:
        guest.answer = None
        guest.heartbeat_due = due = now + self._options.heartbeat_after
        if due < guest.alarm:
            self._heartbeats.arm(guest, due)

    def _confirm(self, guest: Guest) -> None:
        """A later request shows that the answer to its READY has arrived: that READY cannot come again."""
        if not guest.is_confirmed:
            guest.is_confirmed = True
            self._drop_ready(guest)

    def _move(self, guest: Guest, peer: Peer, route: bytes, mark: int) -> None:
        """Its answers go to another connection from now on."""
        guest.turn_from(route[-4:], mark)
        self._drop_ready(guest)
        if guest.peer is not None:
            del guest.peer.guest.guests[guest]
        peer.guest.guests[guest] = None
        guest.peer = peer
        if not guest.is_confirmed:
            peer.guest.readies[route] = guest

    def _drop_ready(self, guest: Guest) -> None:
        """Its own entry only: others may have asked under the same request id."""
        if guest.peer is None:
            if self._lost_readies.get(guest.key) is guest:
                del self._lost_readies[guest.key]
        elif guest.peer.guest.readies.get(guest.route) is guest:
            del guest.peer.guest.readies[guest.route]

    def _forget(self, guest: Guest) -> None:
        """Its id is dead: whatever still comes under it gets DISCONNECT."""
        del self._guests[guest.id]
        self._heartbeats.disarm(guest)
        if guest.peer is not None:
            contacts: Contacts = guest.peer.guest
            del contacts.guests[guest]
            if not guest.is_confirmed:
                contacts.bury(guest)
        self._confirm(guest)
        guest.peer = None

    def _recall(self, attempt: Attempt, reason: str, now: float) -> None:
        """A worker that overran its job's time is given up. One whose job was cancelled may end it: it is unproven."""
        guest: Guest = attempt.worker.party
        if now >= attempt.due and guest.attempt is attempt:
            self._forget(guest)
            self._line.remark("worker gave no result in time", level="warning", worker=guest.worker.name, reason=reason)
            self._broker.leave(guest.worker, now, reason)

    def _dismiss(self, effect: Dismiss) -> None:
        guest: Guest = effect.worker.party
        if self._guests.get(guest.id) is not guest:
            return
        peer, route = guest.peer, guest.route
        self._forget(guest)
        self._line.remark("worker dismissed", peer=peer, worker=effect.worker.name, reason=effect.reason)
        if peer is not None and guest.answer is None:
            self._line.send(peer, [route, write_disconnect(guest.id)])

    # ---------------------------------------------------------------- jobs go out

    def _give(self, attempt: Attempt, now: float) -> None:
        guest: Guest = attempt.worker.party
        if guest.peer is None:  # its connection ended in this very turn
            self._broker.undelivered(attempt, now)
            return
        guest.is_replayed = False
        job = attempt.job
        wishes = job.wishes
        if wishes is not guest.wishes or job.service is not guest.service or wishes.job_timeout == inf:
            guest.wishes, guest.service = wishes, job.service
            guest.header = write_job(guest.id, job.service.name, self._milliseconds(job))
        guest.answer = [guest.header, job.payload]
        self._line.send(guest.peer, [guest.route, guest.header, job.payload], attempt)

    def _take_back(self, attempt: Attempt, now: float) -> None:
        """The answer with this job never left us: the worker still waits for one, wherever it is (R8)."""
        guest: Guest = attempt.worker.party
        is_known = self._guests.get(guest.id) is guest
        if is_known and guest.attempt is attempt and guest.peer is None and not guest.is_replayed:
            self._park(guest, now)
            self._broker.undelivered(attempt, now)

    # ---------------------------------------------------------------- callers

    def _hear_job(
        self, peer: Peer, route: bytes, mark: int, service: str, timeout: int, payload: Frame, now: float
    ) -> None:
        if len(payload) > self._max_payload:
            raise Malformed("too large", f"{len(payload)} bytes are over max_payload {self._max_payload}")
        contacts: Contacts = peer.guest
        if route in contacts.waiting or route in contacts.answered:
            known = contacts.waiting.get(route) or contacts.answered[route]
            if known.mark == mark:
                self._say_again(known)
                return
            self._supersede(known, now)
        if self._orphans:
            orphan = self._orphans.get((peer.address, route[-4:], mark, peer.process))
            if orphan is not None and may_be_back(orphan, peer):
                del self._orphans[orphan.key]
                self._adopt(orphan, peer, route)
                return
        if not self._make_room(peer, now):
            return
        wishes = self._wishes.get(timeout) or self._wishes_for(timeout)
        call = Call(self, peer, route, mark, timeout)
        contacts.waiting[route] = call
        self._waiting += 1
        self._broker.submit(service, payload, call, wishes, now, owner=peer.owner)

    def _say_again(self, call: Call) -> None:
        """The same request once more: the same job, and the same answer if there is one (R62, R63)."""
        if call.is_answered and call.peer is not None:
            self._broker.counters.replayed_answers += 1
            self._line.send(call.peer, [call.route, RESULT_TO_CALLER, call.result])

    def _adopt(self, call: Call, peer: Peer, route: bytes) -> None:
        """A caller is back on a new connection (R62)."""
        call.peer, call.route = peer, route
        if call.is_answered:
            peer.guest.answered[route] = call
        else:
            peer.guest.waiting[route] = call
            self._broker.caller_back(call)
        self._say_again(call)

    def _supersede(self, call: Call, now: float) -> None:
        """Another request under the same id: a REQ that asks anew has dropped what it asked before (R69)."""
        if call.is_answered:
            self._answers.drop(call)
        elif call.job is not None:
            self._silence(call, "its caller asked for something else", now)
        else:
            self._close(call)

    def _silence(self, call: Call, reason: str, now: float) -> None:
        """Nobody will hear of this call any more; its job ends, if it has not begun."""
        job = call.job
        assert job is not None
        self._close(call)
        self._broker.caller_gone(call, now, reason)
        self._broker.counters.silent_ending(CANCELLED)
        self._grumble(call.peer, "call dropped", job=job.id.hex(), reason=reason)

    def _make_room(self, peer: Peer, now: float) -> bool:
        """R76: beyond the bounds the oldest call of the connection gets silence; if it has none, the newcomer does."""
        contacts: Contacts = peer.guest
        options = self._options
        parked = len(contacts.waiting) + len(contacts.guests)
        everywhere = self._waiting + len(self._guests)
        if parked < options.max_parked_per_peer and everywhere < options.max_parked:
            return True
        limit = "max_parked_per_peer" if parked >= options.max_parked_per_peer else "max_parked"
        for call in contacts.waiting.values():
            if call.job is not None:
                self._silence(call, f"too many requests wait for an answer ({limit})", now)
                return True
        self._broker.counters.silent_ending(REFUSED)
        self._grumble(peer, "no room", parked=parked, everywhere=everywhere, limit=limit)
        return False

    def _grumble(self, peer: Peer | None, event: str, **fields: object) -> None:
        if peer is not None:
            self._line.remark_limited(event, level="warning", peer=peer, **fields)

    def _answer(self, answer: Answer, now: float) -> None:
        call: Call = answer.caller  # type: ignore[assignment]
        peer = call.peer
        call.remove_job(answer.job)
        if call.is_over:
            return
        if answer.outcome is not DONE:
            self._close(call)
            self._broker.counters.silent_ending(answer.outcome)  # R73
            return
        self._waiting -= 1
        call.is_answered = True
        call.result = answer.result
        if peer is not None:
            contacts: Contacts = peer.guest
            route = call.route
            del contacts.waiting[route]
            contacts.answered[route] = call
            self._line.send(peer, [route, RESULT_TO_CALLER, call.result])
        self._answers.keep(call, now)

    def _close(self, call: Call) -> None:
        """It ends in silence and is forgotten: should it come again, it is a new one."""
        call.is_over = True
        self._waiting -= 1
        if call.peer is not None:
            del call.peer.guest.waiting[call.route]
        else:
            self._drop_orphan(call)

    def _forget_answer(self, call: Call) -> None:
        if call.peer is not None:
            del call.peer.guest.answered[call.route]
        else:
            self._drop_orphan(call)

    def _drop_orphan(self, call: Call) -> None:
        if self._orphans.get(call.key) is call:
            del self._orphans[call.key]

    # ---------------------------------------------------------------- time-outs

    def _wishes_for(self, timeout: int) -> Wishes:
        if timeout > MAX_TIMEOUT:
            self._broker.counters.clamped_timeouts += 1
            timeout = MAX_TIMEOUT
        wishes = self._wishes.get(timeout)
        if wishes is None:
            if len(self._wishes) >= TIMEOUTS_KEPT:
                self._wishes.clear()
            options = self._options
            wishes = self._wishes[timeout] = Wishes(
                queue_timeout=options.queue_timeout or inf,
                job_timeout=inf if timeout == ENDLESS else timeout / 1000,
                attempts=options.attempts,
                waits=True,  # a worker may still come
                orphan_grace=options.orphan_grace,
            )
        return wishes

    def _milliseconds(self, job: Job) -> int:
        """How long its worker may take, as the wire has it."""
        seconds = job.wishes.job_timeout
        if seconds == inf:
            is_endless = any(type(caller) is Call and caller.timeout == ENDLESS for caller in job.callers)
            return ENDLESS if is_endless else MAX_TIMEOUT
        return max(1, ceil(round(seconds * 1000, 3)))
