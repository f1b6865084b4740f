"""The controller: workers report by pulses, and we call them back on sockets of their own.

Each pulse is a connection of its own, and so is each exchange with a worker; they may overtake one another, and a
worker may even wait for the answer to its FETCH_ME before it answers the SET_TASK in which it computed. So nothing here
waits: pulses are answered at once, and of SET_TASK and FETCH one is under way at a time, with GET_STATUS beside it
where we must know more. The connection of an exchange is not closed before its answer has come: real workers die of a
write that nobody reads. The rules kept here are R81 to R100.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from dragoman.carriers.carrier import Carrier, Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import Dismiss, Effect, Give, Recall
from dragoman.core.infinity import inf
from dragoman.core.model import BOOTING, DRAINING, Attempt, Terms
from dragoman.dialects.controller.codec import (
    edition_of_pulse,
    pulse_of,
    read_pulse,
    read_response,
    write_control,
    write_pulse_response,
)
from dragoman.dialects.controller.editions import EDITIONS, SEED, Edition
from dragoman.dialects.controller.messages import ControllerError, Pulse, PulseKind, Response, WorkerError
from dragoman.dialects.controller.options import ListenerOptions, OnMismatch
from dragoman.dialects.controller.records import Exchange, Purpose, RemoteWorker, Visit
from dragoman.dialects.seam import Line, Peer, Session

PULSES: Final = "pulses"
CONTROL: Final = "control"
ATTEMPTS: Final = 3  # the document: the task is given to another worker
BOOT_EVERY: Final = 0.05
PROBE_TIMEOUT: Final = 1.0
FIRST_REST: Final = 0.1
LONGEST_REST: Final = 30.0
NO_FETCHES: Final = 3
IDLE_PULSES: Final = 2
REGISTERS_A_SECOND: Final = 50
WORKERS_A_UID: Final = 10_000
DROPPED_KEPT: Final = 10_000
DROPPED_FOR: Final = 600.0
MAX_DETAIL: Final = 4_000  # bytes of a worker's own words about an error
ABANDONED_FOR: Final = 3_600.0  # so long an answer that nobody waits for may still come

# May this worker's socket be dialled? A place to dial, or why not.
Reach = Callable[[int], tuple[object | None, str]]


class ControllerSession(Session):
    dialect = "controller"

    def __init__(
        self,
        broker: Broker,
        line: Line,
        options: ListenerOptions,
        uids: Sequence[str],
        first_id: int,
        reach: Reach,
        carrier: Callable[[], Carrier],
    ) -> None:
        """`uids`: who may come in, as peers' addresses have it. `first_id`: all ids from there on are free."""
        self._broker = broker
        self._line = line
        self._options = options
        self._uids = frozenset(uids)
        self._reach = reach
        self._carrier = carrier
        self._fixed = EDITIONS[options.edition.value] if options.edition is not None else None
        self._terms = Terms(may_refuse=True, unproven_limit=options.unproven_limit, attempts=ATTEMPTS)
        self._remotes: dict[int, RemoteWorker] = {}
        self._dropped: dict[int, float] = {}  # ids that were dropped, and when (R88)
        self._workers_of: dict[str, int] = {}  # by uid
        self._first_id = first_id - first_id % 2  # even: see `_new_id`
        self._given_ids = 0
        self._last_task = self._first_id
        self._alarms: Deadlines[RemoteWorker] = Deadlines()
        self._exchanges: Deadlines[Exchange] = Deadlines()
        self._visits: Deadlines[Visit] = Deadlines()
        self._waiting: deque[tuple[Peer, Pulse, Edition]] = deque()  # REGISTERs beyond those of this second (R84)
        self._second = -1
        self._registered = 0

    # ---------------------------------------------------------------- the seam

    def opened(self, peer: Peer, now: float) -> None:
        if peer.endpoint == CONTROL:
            self._send_control(peer.guest, now)
        elif peer.address not in self._uids:  # before a byte is read: an empty message *is* REGISTER (R84)
            self._line.complain("peer refused", peer=peer, reason=f"{peer.address} is not in uid_allow")
            self._line.close(peer, "not in uid_allow")
        else:
            peer.guest = Visit(peer)
            self._visits.arm(peer.guest, now + self._options.control_timeout)

    def hear(self, peer: Peer, message: Message | TooLarge, now: float) -> None:
        assert not isinstance(message, TooLarge)  # the carrier ends the connection instead
        if peer.endpoint == CONTROL:
            self._hear_worker(peer, peer.guest, message, now)
            return
        self._visits.disarm(peer.guest)
        try:
            raw = read_pulse(message[0])
        except Malformed as problem:
            self._line.bad_message(peer, problem.reason, problem.detail)
            self._reply(peer, ControllerError.FAILED, self._fixed or SEED)
            return
        remote = self._remotes.get(raw.worker_id)
        edition = edition_of_pulse(raw.type, raw.worker_id, remote.edition if remote else None, self._fixed)
        self._hear_pulse(peer, pulse_of(raw, edition), edition, now)

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is Give:
            self._set_task(effect.attempt, now)
        elif type(effect) is Recall:
            self._recall(effect.attempt, now)
        elif type(effect) is Dismiss:
            self._dismiss(effect, now)
        # Nobody calls in this dialect, so there is nobody to answer.

    def lost(self, peer: Peer, unsent: Sequence[object], now: float) -> None:
        exchange = peer.guest
        if isinstance(exchange, Exchange) and exchange.peer is peer:
            self._exchanges.disarm(exchange)
            is_seen = exchange.is_sent and exchange not in unsent
            self._broken(exchange, now, is_seen=is_seen)
        elif isinstance(exchange, Visit):
            exchange.is_over = True
            self._visits.disarm(exchange)

    def tick(self, now: float) -> float:
        for exchange in self._exchanges.due(now):
            due = max(exchange.since, self._broker.resumed_at) + exchange.patience  # our pause is not its delay (D13)
            if due > now:
                self._exchanges.arm(exchange, due)
            else:
                self._outlasted(exchange, now)
        for remote in self._alarms.due(now):
            self._judge(remote, now)
        for visit in self._visits.due(now):
            is_answered = visit.peer.endpoint == CONTROL
            reason = "answered" if is_answered else f"no pulse in {self._options.control_timeout:g} s"
            self._line.close(visit.peer, reason)
        self._register_waiting(now)
        due = min(self._alarms.next(), self._exchanges.next(), self._visits.next())
        return min(due, float(int(now) + 1)) if self._waiting else due

    # ---------------------------------------------------------------- pulses

    def _hear_pulse(self, peer: Peer, pulse: Pulse, edition: Edition, now: float) -> None:
        if pulse.kind is None:
            self._line.bad_message(peer, "unknown type", f"a pulse of type {pulse.number}")
            self._reply(peer, ControllerError.UNKNOWN_TYPE, edition)
        elif pulse.kind is PulseKind.REGISTER:
            self._waiting.append((peer, pulse, edition))
            self._register_waiting(now)
        else:
            self._hear_known(peer, pulse, edition, now)

    def _hear_known(self, peer: Peer, pulse: Pulse, edition: Edition, now: float) -> None:
        remote = self._remotes.get(pulse.worker_id)
        if remote is None or remote.uid != peer.address:  # R88, R89
            if self._dropped.get(pulse.worker_id, -inf) + DROPPED_FOR >= now:
                self._broker.counters.false_expiries += 1
            self._reply(peer, ControllerError.UNKNOWN_ID, edition)
            return
        self._reply(peer, ControllerError.OK, edition)  # a worker waits for it before it does anything else
        if pulse.kind is PulseKind.SHUTDOWN:
            self._drop(remote, "its worker said SHUTDOWN", now)
            return
        remote.next_pulse = self._lease(pulse.next_pulse)
        remote.note_pulse_from(peer.process)
        self._renew(remote, now)
        if remote.worker.state is BOOTING:
            self._booted(remote, now)
        is_news = peer.since > remote.last_exchange and remote.exchange is None
        if pulse.kind is PulseKind.FETCH_ME and self._is_about_now(remote, pulse.task_id):
            remote.wants_fetch = True
            self._next_exchange(remote, now)
        elif is_news:
            self._compare_task(remote, pulse.task_id, now)

    def _is_about_now(self, remote: RemoteWorker, task: int) -> bool:
        """R92. What an earlier task left must not end a newer one: such a FETCH_ME is a pulse like any other."""
        is_old = remote.is_set and task != 0 and task == remote.previous
        remote.has_leftover = remote.has_leftover or (is_old and remote.exchange is not None)
        return not is_old

    def _compare_task(self, remote: RemoteWorker, task: int, now: float) -> None:
        """Its pulse names a task. Idle workers keep naming their last one, so only a foreign one is a reason to ask."""
        is_mine = task == remote.task
        if self._options.restart_on_mismatch is OnMismatch.ALWAYS and not is_mine:
            self._restart(remote, f"its worker named task {task} and not {remote.task}", now)
            return
        if task == 0 and remote.rest:
            self._rested(remote, now, is_free=True)  # R98
        if is_mine or task in (0, remote.previous):
            is_amiss = remote.is_taken and not is_mine
            remote.idle_pulses = remote.idle_pulses + 1 if is_amiss else 0
            if remote.idle_pulses >= IDLE_PULSES:
                remote.no_fetches = NO_FETCHES - 1  # it has had its chance: nothing to fetch now means lost
                remote.fetches_again = True
                remote.wants_fetch = True
                self._next_exchange(remote, now)
        elif remote.probe is None:
            self._dial(remote, Purpose.MISMATCH, PROBE_TIMEOUT, now)

    def _register_waiting(self, now: float) -> None:
        """R84: beyond so many a second the others' answers wait."""
        if int(now) != self._second:
            self._second, self._registered = int(now), 0
        while self._waiting and self._registered < REGISTERS_A_SECOND:
            peer, pulse, edition = self._waiting.popleft()
            if not peer.guest.is_over:
                self._registered += 1
                self._register(peer, pulse, edition, now)

    def _register(self, peer: Peer, pulse: Pulse, edition: Edition, now: float) -> None:
        uid = peer.address
        if self._workers_of.get(uid, 0) >= WORKERS_A_UID:
            self._line.complain("worker refused", peer=peer, reason=f"{WORKERS_A_UID} workers of {uid}")
            self._reply(peer, ControllerError.FAILED, edition)
            return
        next_pulse = self._lease(pulse.next_pulse)
        remote = RemoteWorker(self._new_id(edition), edition, peer, next_pulse, now + self._options.socket_wait)
        name = f"worker {remote.id}"
        worker = self._broker.join(self, remote, name, (self._options.service,), self._terms, now)
        if worker is None:
            self._reply(peer, ControllerError.FAILED, edition)
            return
        remote.worker = worker
        self._remotes[remote.id] = remote
        self._workers_of[uid] = self._workers_of.get(uid, 0) + 1
        self._line.remark("worker registered", peer=peer, worker=name, edition=edition.name)
        self._reply(peer, ControllerError.OK, edition, remote.id)
        self._alarms.arm(remote, now + BOOT_EVERY)

    def _reply(self, peer: Peer, error: ControllerError, edition: Edition, worker_id: int = 0) -> None:
        self._line.send(peer, [write_pulse_response(error, edition, worker_id=worker_id)])
        self._line.close(peer, "answered")

    def _new_id(self, edition: Edition) -> int:
        """Odd for one edition, even for the other, so that an id names its edition for ever (R85)."""
        self._given_ids += 1
        return self._first_id + 2 * self._given_ids - edition.parity

    def _lease(self, next_pulse: int) -> float:
        """R90."""
        return min(next_pulse or self._options.default_pulse, self._options.max_pulse)

    # ---------------------------------------------------------------- a worker's life

    def _renew(self, remote: RemoteWorker, now: float) -> None:
        self._broker.seen(remote.worker, now)
        self._alarms.arm(remote, self._lease_end(remote))

    def _lease_end(self, remote: RemoteWorker) -> float:
        return remote.worker.seen + remote.next_pulse + self._options.pulse_grace

    def _booted(self, remote: RemoteWorker, now: float) -> None:
        """Registered, and its socket is there: it may have work."""
        self._line.remark("worker joined", worker=remote.worker.name, service=self._options.service)
        self._broker.idle(remote.worker, now)

    def _judge(self, remote: RemoteWorker, now: float) -> None:
        """Its next boot look, the end of its rest, or the end of its lease, whichever was due."""
        if remote.worker.state is BOOTING and now < remote.boot_until and remote.probe is None:
            self._dial(remote, Purpose.BOOT, PROBE_TIMEOUT, now)
        if remote.rest_until <= now:
            self._rested(remote, now)
        lease_end = self._lease_end(remote)
        if lease_end <= now:
            lease_end = self._end_lease(remote, now)
        if self._remotes.get(remote.id) is remote:
            self._alarms.arm(remote, min(lease_end, remote.rest_until))

    def _end_lease(self, remote: RemoteWorker, now: float) -> float:
        """R90: ask once before it is declared dead, unless it is in the middle of something with us."""
        if remote.probe is None and remote.exchange is None:
            self._dial(remote, Purpose.LEASE, PROBE_TIMEOUT, now)
        elif remote.exchange is not None and remote.exchange.purpose is Purpose.TASK and remote.probe is None:
            self._drop(remote, f"its worker was silent for {remote.next_pulse:g} s", now)
        return now + 2 * PROBE_TIMEOUT

    def _process_ended(self, remote: RemoteWorker, now: float) -> None:
        """R90: ask at once instead of at the end of its lease. Another process may have taken over its socket."""
        if self._remotes.get(remote.id) is remote:
            self._dial(remote, Purpose.ENDED, PROBE_TIMEOUT, now)

    def _rested(self, remote: RemoteWorker, now: float, *, is_free: bool = False) -> None:
        """The time in which it is offered nothing is over, or it has said itself that it is free."""
        remote.rest_until = inf
        if is_free:
            remote.rest = 0.0
        self._broker.idle(remote.worker, now)

    def _drop(self, remote: RemoteWorker, reason: str, now: float, unseen: Sequence[Attempt] = ()) -> None:
        """Forget it; its job follows D8, once (R97). Answers that are still to come are read, and mean nothing."""
        if self._remotes.get(remote.id) is not remote:
            return
        unseen = unseen or self._unseen(remote)
        self._forget(remote, now)
        self._line.remark("worker left", worker=remote.worker.name, reason=reason)
        self._broker.leave(remote.worker, now, reason, unseen)

    def _unseen(self, remote: RemoteWorker) -> Sequence[Attempt]:
        """What it has been given, if its SET_TASK has not left us (R8)."""
        attempt, exchange = remote.attempt, remote.exchange
        if attempt is None or (remote.is_set and (exchange is None or exchange.is_sent)):
            return ()
        return (attempt,)

    def _forget(self, remote: RemoteWorker, now: float) -> None:
        del self._remotes[remote.id]
        self._workers_of[remote.uid] -= 1
        self._alarms.disarm(remote)
        remote.end_watch()
        remote.is_released = True
        for exchange in (remote.exchange, remote.probe):
            if exchange is not None:
                self._give_up(exchange, now)
        remote.exchange = remote.probe = None
        self._dropped[remote.id] = now
        while self._dropped and (len(self._dropped) > DROPPED_KEPT or self._oldest_drop() + DROPPED_FOR < now):
            del self._dropped[next(iter(self._dropped))]

    def _oldest_drop(self) -> float:
        return next(iter(self._dropped.values()))

    def _restart(self, remote: RemoteWorker, reason: str, now: float) -> None:
        """It must end. Whatever it answers, it is gone."""
        self._dial(remote, Purpose.LEAVE, self._options.control_timeout, now)
        self._drop(remote, reason, now)

    def _dismiss(self, effect: Dismiss, now: float) -> None:
        remote: RemoteWorker = effect.worker.party
        if self._remotes.get(remote.id) is not remote or remote.worker is not effect.worker:
            return
        self._line.remark("worker dismissed", worker=remote.worker.name, reason=effect.reason)
        if effect.farewell.is_final:
            self._dial(remote, Purpose.LEAVE, self._options.control_timeout, now)
        self._forget(remote, now)

    # ---------------------------------------------------------------- jobs

    def _set_task(self, attempt: Attempt, now: float) -> None:
        remote: RemoteWorker = attempt.worker.party
        remote.is_released = False
        remote.is_set = remote.is_taken = remote.fetches_again = remote.has_leftover = False
        remote.no_fetches = remote.idle_pulses = 0
        self._next_exchange(remote, now)

    def _next_exchange(self, remote: RemoteWorker, now: float) -> None:
        """Always FETCH before the next SET_TASK, and one at a time."""
        if remote.exchange is not None or self._remotes.get(remote.id) is not remote:
            return
        attempt = remote.attempt
        if remote.wants_fetch:
            remote.wants_fetch = False
            self._dial(remote, Purpose.FETCH, self._options.control_timeout, now)
        elif attempt is not None and not remote.is_set:
            remote.is_set = True
            self._last_task += 1
            remote.task = self._last_task
            self._dial(remote, Purpose.TASK, attempt.job.wishes.job_timeout, now)
        elif attempt is None and remote.worker.unproven and remote.rest_until == inf:
            self._broker.idle(remote.worker, now)  # it was recalled while an exchange was under way

    def _recall(self, attempt: Attempt, now: float) -> None:
        """The attempt is over. The worker may have more as soon as its exchange has ended: BUSY would say that it is
        still at the old one."""
        remote: RemoteWorker = attempt.worker.party
        if remote.attempt is attempt:
            self._release(remote)
            self._next_exchange(remote, now)

    def _release(self, remote: RemoteWorker) -> None:
        """It holds nothing of ours any more."""
        remote.is_released = True
        remote.is_set = remote.is_taken = False
        remote.previous, remote.task = remote.task or remote.previous, 0
        remote.no_fetches = remote.idle_pulses = 0
        remote.fetches_again = False

    def _lose_task(self, remote: RemoteWorker, reason: str, now: float) -> None:
        """Its result will never come, but it lives: to its job this is the end of a worker (R9). It begins anew."""
        self._line.remark("task lost", level="warning", worker=remote.worker.name, reason=reason)
        if remote.worker.state is DRAINING:
            self._restart(remote, reason, now)
            return
        self._release(remote)
        self._broker.leave(remote.worker, now, reason)
        worker = self._broker.join(self, remote, remote.worker.name, (self._options.service,), self._terms, now)
        assert worker is not None, "its service is known"
        remote.worker = worker
        self._broker.idle(worker, now)

    # ---------------------------------------------------------------- exchanges

    def _dial(self, remote: RemoteWorker, purpose: Purpose, patience: float, now: float) -> None:
        exchange = Exchange(remote, purpose, patience, now)
        exchange.about = remote.exchange
        if purpose is Purpose.TASK or purpose is Purpose.FETCH:
            remote.exchange = exchange
            exchange.attempt = remote.attempt if remote.is_set else None
        elif purpose is not Purpose.LEAVE and purpose is not Purpose.ENDED:
            remote.probe = exchange
        place, problem = self._reach(remote.id)
        if place is None:
            if purpose is not Purpose.BOOT:
                self._line.remark("worker not dialled", level="warning", worker=remote.worker.name, reason=problem)
            self._broken(exchange, now, is_seen=False)
            return
        exchange.carrier = self._carrier()
        exchange.peer = self._line.dial(self, place, CONTROL, exchange.carrier)
        exchange.peer.guest = exchange
        if patience < inf:
            self._exchanges.arm(exchange, now + patience)

    def _send_control(self, exchange: Exchange, now: float) -> None:
        """The connection stands: say what it is for. Nobody is dialled for nothing: it would be waiting for us."""
        remote, peer = exchange.remote, exchange.peer
        assert peer is not None
        if peer.address and peer.address != remote.uid:
            self._line.remark("worker not trusted", level="warning", worker=remote.worker.name, uid=peer.address)
            self._line.close(peer, "another user listens there")
            return
        if remote.stop_watch is None and remote.is_served_by(peer.process):
            remote.stop_watch = self._line.when_process_ends(peer, lambda now: self._process_ended(remote, now))
        exchange.is_sent = True
        attempt = exchange.attempt
        if exchange.purpose is Purpose.TASK and (attempt is None or attempt.job.attempt is not attempt):
            self._say_something_else(exchange, now)
        if exchange.purpose is Purpose.TASK and attempt is not None:
            payload = attempt.job.payload
            head = write_control(exchange.kind, remote.edition, task_id=exchange.task, extra_size=len(payload))
            attempt.begin(now)
            self._line.send(peer, [head, payload], exchange)
        else:
            self._line.send(peer, [write_control(exchange.kind, remote.edition)], exchange)

    def _say_something_else(self, exchange: Exchange, now: float) -> None:
        """The job was taken back while its worker was being dialled, and the worker waits for a message."""
        remote = exchange.remote
        exchange.purpose = Purpose.BOOT
        if not exchange.is_given_up:
            if remote.previous == exchange.task:
                remote.previous = exchange.previous
            exchange.wait(PROBE_TIMEOUT, now)
            self._exchanges.arm(exchange, now + PROBE_TIMEOUT)

    def _hear_worker(self, peer: Peer, exchange: Exchange, message: Message, now: float) -> None:
        remote = exchange.remote
        exchange.peer = None
        self._exchanges.disarm(exchange)
        self._part(peer, now)
        self._ended(exchange, now)
        if exchange.is_given_up or exchange.purpose is Purpose.LEAVE or self._remotes.get(remote.id) is not remote:
            return
        try:
            response = read_response(message[0], remote.edition)
        except Malformed as problem:
            self._line.bad_message(peer, problem.reason, problem.detail)
            self._drop(remote, f"its worker's answer was {problem.reason}", now)
            return
        if response.error is None or response.error is WorkerError.FAILED:  # R97
            told = _text(message[1]) or f"error {response.number}"
            self._drop(remote, f"its worker answered {exchange.kind.value} with FAILED: {told}", now)
        elif exchange.purpose is Purpose.TASK:
            self._task_answered(remote, exchange, response, message[1], now)
        elif exchange.purpose is Purpose.FETCH:
            self._fetched(remote, exchange.attempt, response, message[1], now)
        else:
            self._status(remote, exchange, response, now)
        if self._remotes.get(remote.id) is remote:
            self._next_exchange(remote, now)

    def _part(self, peer: Peer, now: float) -> None:
        """Its answer is whole, and closing is the worker's part. One that writes an answer piece by piece, the last of
        them empty, would die of it if we were faster."""
        peer.guest = Visit(peer)
        self._visits.arm(peer.guest, now + self._options.control_timeout)

    def _ended(self, exchange: Exchange, now: float) -> None:
        remote = exchange.remote
        remote.last_exchange = now
        if remote.exchange is exchange:
            remote.exchange = None
        if remote.probe is exchange:
            remote.probe = None

    def _task_answered(
        self, remote: RemoteWorker, exchange: Exchange, response: Response, extra: Frame, now: float
    ) -> None:
        attempt = exchange.attempt
        assert attempt is not None
        self._renew(remote, now)
        leftover, remote.has_leftover = remote.has_leftover, False
        if response.error is WorkerError.OK:
            remote.is_taken = remote.attempt is attempt
        elif response.error is WorkerError.NO_FETCH:  # it has no meaning here, and says nothing about the job
            self._drop(remote, "its worker answered SET_TASK with NO_FETCH", now)
        elif response.error is WorkerError.BUSY:  # R98
            if remote.attempt is attempt:
                self._release(remote)
            remote.previous = exchange.previous  # what it has not taken was never its own
            remote.wants_fetch = remote.wants_fetch or leftover
            remote.rest = min(LONGEST_REST, 2 * remote.rest or FIRST_REST)
            remote.rest_until = now + remote.rest
            self._alarms.arm(remote, remote.rest_until)
            self._broker.refuse(attempt, now)
        elif response.error is WorkerError.TASK_FAILED and remote.attempt is attempt:
            self._task_failed(remote, attempt, extra, now)

    def _fetched(
        self, remote: RemoteWorker, attempt: Attempt | None, response: Response, extra: Frame, now: float
    ) -> None:
        self._renew(remote, now)
        if attempt is not remote.attempt:
            attempt = None  # it is over: what there is to fetch is nobody's any more
        if response.error is WorkerError.OK:
            if response.task_id not in (0, remote.task, remote.previous):  # R95
                self._broker.counters.late_results += 1
                self._drop(remote, f"its worker gave the result of task {response.task_id}, which is not its own", now)
                return
            self._rested(remote, now, is_free=True)  # R98
            if attempt is None:
                self._broker.counters.late_results += 1
                return
            self._release(remote)
            if not self._broker.succeed(attempt, extra, now):
                self._line.remark("late result", worker=remote.worker.name, job=attempt.job.id.hex())
        elif response.error is WorkerError.TASK_FAILED:
            self._rested(remote, now, is_free=True)
            if attempt is not None:
                self._task_failed(remote, attempt, extra, now)
        elif attempt is not None:  # NO_FETCH, or an answer that has no meaning here
            self._nothing_to_fetch(remote, now)

    def _nothing_to_fetch(self, remote: RemoteWorker, now: float) -> None:
        """R93, R94: it happens, but not for ever."""
        remote.no_fetches += 1
        if remote.fetches_again:
            self._lose_task(remote, "its worker has no result any more", now)
        elif remote.no_fetches >= NO_FETCHES and remote.probe is None:
            self._dial(remote, Purpose.MISSING, PROBE_TIMEOUT, now)

    def _task_failed(self, remote: RemoteWorker, attempt: Attempt, extra: Frame, now: float) -> None:
        """R96: another worker may do it; this one is idle."""
        self._release(remote)
        self._broker.fail(attempt, _text(extra) or "its worker said TASK_FAILED", now)

    def _status(self, remote: RemoteWorker, exchange: Exchange, response: Response, now: float) -> None:
        """It lives, and names its task."""
        purpose, stuck = exchange.purpose, exchange.about
        self._renew(remote, now)
        if remote.worker.state is BOOTING:
            self._booted(remote, now)
        task = response.task_id
        if task == 0 and remote.rest and purpose is not Purpose.BOOT:
            self._rested(remote, now, is_free=True)
        if purpose is Purpose.MISMATCH and task not in (0, remote.task, remote.previous):
            self._restart(remote, f"its worker named task {task} and not {remote.task}", now)  # R91
        elif purpose is Purpose.MISSING and remote.attempt is not None and task != remote.task:
            if remote.exchange is None and not remote.wants_fetch:  # else it has said FETCH_ME again meanwhile
                self._lose_task(remote, "its worker has neither the task nor a result", now)
        elif purpose is Purpose.STUCK and stuck is not None and remote.exchange is stuck:
            if task != stuck.task:
                self._drop(remote, "its worker hung in the middle of an exchange", now)  # R99
            else:  # it runs: wait on, and ask again, for it may lose the task later
                stuck.wait(self._options.control_timeout, now)
                self._exchanges.arm(stuck, now + self._options.control_timeout)

    # ---------------------------------------------------------------- exchanges that go wrong

    def _broken(self, exchange: Exchange, now: float, *, is_seen: bool) -> None:
        """The connection ended, or never stood, before there was an answer."""
        exchange.peer = None
        self._ended(exchange, now)
        remote, purpose = exchange.remote, exchange.purpose
        if exchange.is_given_up or purpose is Purpose.LEAVE or self._remotes.get(remote.id) is not remote:
            return
        failure = exchange.carrier.failure if exchange.carrier is not None else None
        if failure is not None:  # R100
            self._drop(remote, f"its worker's answer to {exchange.kind.value} was refused: {failure.reason}", now)
        elif purpose is Purpose.BOOT:
            self._alarms.arm(remote, now + BOOT_EVERY)  # R87
            self._next_exchange(remote, now)
        elif purpose is Purpose.LEASE:
            if self._lease_end(remote) <= now:  # else it was heard from meanwhile
                reason = f"its worker was silent for {remote.next_pulse:g} s and is not there any more"
                self._drop(remote, reason, now)
        elif purpose is Purpose.ENDED:
            self._drop(remote, "its worker's process has ended", now)
        elif purpose is Purpose.FETCH and is_seen and not remote.fetches_again:  # R94
            remote.fetches_again = True
            remote.wants_fetch = True
            self._next_exchange(remote, now)
        elif purpose is Purpose.FETCH and is_seen and remote.attempt is not None:
            self._lose_task(remote, "its worker broke off twice in the middle of its result", now)
        elif purpose is Purpose.TASK and not is_seen:
            unseen = (exchange.attempt,) if exchange.attempt is not None else ()
            self._drop(remote, "its worker could not be reached", now, unseen)
        else:
            self._drop(remote, f"its worker broke off in the middle of {exchange.kind.value}", now)

    def _outlasted(self, exchange: Exchange, now: float) -> None:
        """R99: no answer in time."""
        remote = exchange.remote
        if exchange.is_given_up:
            if exchange.peer is not None:
                self._line.close(exchange.peer, "no answer came")
            return
        if exchange.purpose is Purpose.TASK or exchange.purpose is Purpose.FETCH:
            if remote.probe is None:
                self._dial(remote, Purpose.STUCK, PROBE_TIMEOUT, now)
            else:
                exchange.wait(PROBE_TIMEOUT, now)
                self._exchanges.arm(exchange, now + PROBE_TIMEOUT)
            return
        self._give_up(exchange, now)
        self._ended(exchange, now)
        if self._remotes.get(remote.id) is not remote:
            return
        if exchange.purpose is Purpose.BOOT:
            self._alarms.arm(remote, now + BOOT_EVERY)
            self._next_exchange(remote, now)
        elif exchange.purpose is Purpose.LEASE and self._lease_end(remote) > now:
            pass  # it was heard from meanwhile
        elif exchange.purpose is not Purpose.LEAVE:
            self._drop(remote, "its worker did not answer GET_STATUS", now)

    def _give_up(self, exchange: Exchange, now: float) -> None:
        """Nobody waits for its answer, but it is read, should it still come."""
        exchange.is_given_up = True
        exchange.wait(ABANDONED_FOR, now)
        self._exchanges.arm(exchange, now + ABANDONED_FOR)


def _text(extra: Frame) -> str:
    """A worker's own words about an error, for its caller."""
    return bytes(extra[:MAX_DETAIL]).decode("utf-8", "replace").strip()
