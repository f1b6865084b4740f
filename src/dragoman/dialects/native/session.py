"""The broker's side of the native dialect: clients and workers at one door.

A connection is nobody's until its HELLO; then its guest is a `Worker` (with the core's worker in it) or a `Client`.
What a worker says names attempts by their tokens, which the core's worker keeps: nothing is remembered twice. What a
client submits is named by the client, and its session outlives its connection for a while (`sessions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from dragoman.carriers.carrier import Frame, Message, TooLarge, size_of
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.effects import Answer, Dismiss, Effect, Give, Progress, Recall
from dragoman.core.failure import reported_failure
from dragoman.core.infinity import inf
from dragoman.core.model import (
    DEFAULT_PRIORITY,
    DONE,
    DRAINING,
    GONE,
    Attempt,
    JobId,
    Outcome,
    Refusal,
    Terms,
    Token,
    Wishes,
)
from dragoman.core.model import Worker as CoreWorker
from dragoman.core.oversize import over_max_payload
from dragoman.dialects.native.asks import Asks, Desk
from dragoman.dialects.native.codec import (
    expect_frames,
    read_failed,
    read_hello,
    read_list,
    read_name,
    read_names,
    read_order,
    read_report,
    read_result,
    write_bye,
    write_error,
    write_failed,
    write_jobs,
    write_list,
    write_recall,
    write_record,
    write_report,
    write_result,
    write_welcome,
)
from dragoman.dialects.native.messages import (
    ACCEPTED,
    ACK,
    ASK,
    BYE,
    CANCEL,
    DRAIN,
    FAILED,
    HEARTBEAT,
    HELLO,
    MISSING,
    MOST_NAMES,
    NAME,
    PART,
    PROGRESS,
    RESULT,
    RESUME,
    RETURN,
    SUBMIT,
    TOO_LARGE,
    UNSAID_PRIORITY,
    VERSION,
    WORDS,
    Flag,
    Hello,
    Order,
    Role,
    Welcome,
    name_of,
)
from dragoman.dialects.native.options import ListenerOptions
from dragoman.dialects.native.sessions import Client, Outcomes, Sessions
from dragoman.dialects.seam import Line, Peer, Session

BATCH_BYTES: Final = 1 << 20  # more than this in one turn goes out one by one
MOST_PLANS: Final = 1024  # different heads of SUBMIT that are remembered
LONGEST_PLAN: Final = 256  # bytes of a head that is
BACKGROUND: Final = "a background job is handed in with ASK and the question 'enqueue', not with SUBMIT"
NOT_KEPT: Final = "its outcome was not kept: more came than max_kept_bytes"
GRACE: Final = 10.0  # seconds after a pause of our own, in which those who are away can come back (D13)
HEARTBEAT_FRAMES: Final[list[Frame]] = [bytes((HEARTBEAT,))]


class Worker:
    """What we know of one worker's connection."""

    __slots__ = ("farewell", "given", "name", "peer", "worker")

    def __init__(self, peer: Peer, name: str) -> None:
        self.peer = peer
        self.name = name
        self.given: list[Attempt] = []  # in this turn: they leave at its end, in one message
        self.worker: CoreWorker | None = None
        self.farewell = ""  # why we hang up on it

    def attempt(self, token: bytes) -> Attempt | None:
        """What it was given under this token and has not answered, current or not."""
        return self.worker.find(Token(token)) if self.worker is not None else None


class Plan:
    """What a head of SUBMIT means, read once."""

    __slots__ = ("deadline", "is_background", "service", "wants_accept", "wishes")

    def __init__(self, order: Order, wishes: Wishes) -> None:
        self.service = order.service
        self.deadline = order.deadline or inf
        self.wishes = wishes
        self.wants_accept = bool(order.flags & Flag.ACCEPT)
        self.is_background = bool(order.flags & Flag.BACKGROUND)


class NativeSession(Session):
    dialect = "native"

    def __init__(
        self,
        broker: Broker,
        line: Line,
        options: ListenerOptions,
        max_payload: int,
        about: str,
        desk: Desk | None = None,
    ) -> None:
        self._broker = broker
        self._line = line
        self._options = options
        self._max_payload = max_payload
        self._about = about
        self._plans: dict[bytes, Plan] = {}
        self._terms: dict[tuple[int, bool], Terms] = {}  # by what workers say of themselves
        self._sessions = Sessions(options.max_sessions)
        self._asks = Asks(desk, line)
        self._gave: list[Worker] = []  # workers with something to send at the end of this turn
        self._told: list[Client] = []  # and clients
        self._client_words: Mapping[int, Callable[[Client, Message, float], None]] = {
            SUBMIT: self._submit,
            CANCEL: self._cancel,
            ACK: self._ack,
            RESUME: self._resume,
            ASK: self._asks.hear,
        }
        self._worker_words: Mapping[int, Callable[[Worker, Message, float], None]] = {
            RESULT: self._result,
            FAILED: self._failed,
            PROGRESS: self._report,
            PART: self._report,
            RETURN: self._return,
            DRAIN: self._drain,
        }

    # ---------------------------------------------------------------- the seam

    def opened(self, peer: Peer, now: float) -> None:
        peer.guest = None

    def hear(self, peer: Peer, message: Message | TooLarge, now: float) -> None:
        guest = peer.guest
        try:
            if isinstance(message, TooLarge):
                self._hear_large(peer, message, now)
                return
            head = message[0]
            if not head:
                raise Malformed("malformed", "an empty head")
            if type(head) is bytearray:
                message[0] = head = bytes(head)
            word = head[0]
            if type(guest) is Worker:
                if guest.worker is not None:
                    self._broker.seen(guest.worker, now)
                hear_worker = self._worker_words.get(word)
                if hear_worker is not None:
                    hear_worker(guest, message, now)
                    return
            elif type(guest) is Client:
                hear_client = self._client_words.get(word)
                if hear_client is not None:
                    hear_client(guest, message, now)
                    return
            self._hear_other(peer, word, message, now)
        except Malformed as problem:
            self._object(peer, message, problem)

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is Give:
            attempt = effect.attempt
            guest: Worker = attempt.worker.party
            if not guest.given:
                if not self._gave:
                    self._line.at_end_of_turn(self._send_all_jobs)
                self._gave.append(guest)
            guest.given.append(attempt)
        elif type(effect) is Answer:
            self._answer(effect)
        elif isinstance(effect, Recall):
            self._recall(effect.attempt, effect.reason, now)
        elif isinstance(effect, Progress):
            self._pass_on(effect)
        elif isinstance(effect, Dismiss):
            self._dismiss(effect)
        # Accept: whoever asks for a background job asks the desk, and hears of it from there.

    def lost(self, peer: Peer, unsent: Sequence[object], now: float) -> None:
        guest, peer.guest = peer.guest, None
        if type(guest) is Worker:
            unseen = [attempt for mark in unsent if type(mark) is list for attempt in mark]
            unseen += guest.given
            guest.given = []
            self._leave(guest, guest.farewell or "its worker's connection ended", now, unseen)
        elif type(guest) is Client and guest.peer is peer:
            self._asks.leave(guest, now)
            guest.peer = None
            if not guest.secret or self._options.resume <= 0:
                self._abandon(guest, now)
                return
            self._broker.caller_away(guest, now)
            for forgotten in self._sessions.note_away(guest, now + self._options.resume):
                self._abandon(forgotten, now)

    def tick(self, now: float) -> float:
        due = self._sessions.next_due()
        if due > now:
            return due
        judged = self._broker.resumed_at + min(GRACE, self._options.resume)
        if judged > now:
            return judged
        for client in self._sessions.overdue(now):
            self._abandon(client, now)
        return self._sessions.next_due()

    def say_goodbye(self, reason: str) -> None:
        """The broker stops: tell the clients. Workers are dismissed by then."""
        for client in self._sessions.present:
            if client.peer is not None:
                self._part(client.peer, reason, is_final=False)

    # ---------------------------------------------------------------- words that everybody may say

    def _hear_other(self, peer: Peer, word: int, message: Message, now: float) -> None:
        guest = peer.guest
        if guest is None:
            if word != HELLO:
                raise Malformed("hello first", f"{name_of(word)} before HELLO")
            self._hello(peer, read_hello(message), now)
        elif word == HEARTBEAT:
            expect_frames(message, 1)
            self._line.send(peer, HEARTBEAT_FRAMES)
        elif word == BYE:
            expect_frames(message, 2)
            if type(guest) is Client:
                self._sessions.forget(guest)
                guest.secret = ""  # it will not come back
            else:
                self._leave(guest, "its worker said BYE", now)
            self._line.close(peer, "it said BYE")
        elif word == HELLO:
            raise Malformed("twice", "HELLO again on the same connection")
        elif word in WORDS:
            who = "a client" if type(guest) is Client else "a worker"
            raise Malformed("role", f"{name_of(word)} is not for {who} to say")
        else:
            raise Malformed("unknown word", f"{name_of(word)} is no word of version {VERSION}")

    def _part(self, peer: Peer, reason: str, *, is_final: bool) -> None:
        self._line.send(peer, write_bye(reason, is_final=is_final))
        self._line.close(peer, reason)

    def _object(self, peer: Peer, message: Message | TooLarge, problem: Malformed) -> None:
        """D6: say what was wrong. Who has not even said HELLO is in the wrong place."""
        frames = message.frames if isinstance(message, TooLarge) else message
        word = frames[0][0] if frames and frames[0] else 0
        self._line.bad_message(peer, problem.reason, problem.detail)
        self._line.send(peer, write_error(word, problem.reason, problem.detail))
        if peer.guest is None:
            self._line.close(peer, f"{problem.reason}: {problem.detail}")

    def _hear_large(self, peer: Peer, message: TooLarge, now: float) -> None:
        """It was skipped as it came; its leading frames tell whom it concerns."""
        sentence = over_max_payload("a message", message.size, self._max_payload)
        frames, guest = message.frames, peer.guest
        word = frames[0][0] if frames and frames[0] else 0
        if type(guest) is Worker and guest.worker is not None:
            self._broker.seen(guest.worker, now)
        if type(guest) is Client and word == SUBMIT and len(frames) > 1:
            ids = read_names(frames[1])
            self._line.bad_message(peer, TOO_LARGE, sentence)
            for id in ids:
                self._refuse(guest, id, TOO_LARGE, sentence)
        elif type(guest) is Client and word == ASK:
            self._asks.hear_large(guest, message, sentence)
            self._line.bad_message(peer, TOO_LARGE, sentence)
        elif type(guest) is Worker and word in (RESULT, FAILED):
            tokens = read_names(frames[0], 1) if word == RESULT else [read_name(frames[0], 2)]
            self._line.bad_message(peer, TOO_LARGE, sentence)
            reason = over_max_payload("its answer", message.size, self._max_payload)
            for token in tokens:
                attempt = guest.attempt(token) or self._stranded(token)
                if attempt is None:
                    self._broker.counters.late_results += 1
                else:
                    self._broker.fail(attempt, reason, now)
        else:
            raise Malformed(TOO_LARGE, sentence)

    def _hello(self, peer: Peer, hello: Hello, now: float) -> None:
        if hello.role is Role.WORKER:
            self._welcome_worker(peer, hello, now)
        else:
            self._welcome_client(peer, hello, now)

    def _welcome(self, peer: Peer, role: Role, window: int = 0, resumed: bool = False, epoch: str = "") -> None:
        options = self._options
        welcome = Welcome(
            options.heartbeat, options.lease, self._max_payload, window, options.resume, resumed, epoch, self._about
        )
        self._line.send(peer, write_welcome(welcome, role))

    # ---------------------------------------------------------------- clients

    def _welcome_client(self, peer: Peer, hello: Hello, now: float) -> None:
        options = self._options
        session = hello.session if options.resume > 0 else ""
        client = self._sessions.take(session + hello.epoch) if session else None
        resumed = client is not None
        if client is None:  # also if it is known, and our WELCOME never arrived: then it means an earlier one
            epoch = self._broker.entropy.token().hex() if session else ""
            window = min(hello.window or options.window, options.window)
            client = Client(self, session + epoch, epoch, window)
            self._sessions.enter(client)
        elif client.peer is not None:  # the former connection is dead, and we had not noticed
            self._broker.counters.takeovers += 1
            self._asks.leave(client, now)
            former, client.peer = client.peer, None
            former.guest = None
            self._line.close(former, "its client came back on a new connection")
        client.peer = peer
        client.connection += 1
        peer.guest = client
        self._broker.caller_back(client)
        self._welcome(peer, Role.CLIENT, client.window, resumed, client.epoch)

    def _submit(self, client: Client, message: Message, now: float) -> None:
        head = message[0]
        plan = self._plans.get(head) or self._plan(head)  # type: ignore[arg-type]
        ids = message[1] if len(message) > 2 else b""
        count = len(message) - 2
        if len(ids) != count * NAME:
            raise Malformed("malformed", f"a SUBMIT of {len(message)} frames with {len(ids)} bytes of ids")
        if plan.is_background:
            for id in read_names(ids):
                self._refuse(client, id, Refusal.INVALID, BACKGROUND)
            return
        under_way = client.count_open()
        if under_way + count > client.window:
            sentence = f"its client has {under_way} of {client.window} jobs under way"
            for id in read_names(ids):
                self._refuse(client, id, Refusal.BUSY, sentence)
                self._broker.counters.drop(self._broker.roster.counted_as(plan.service), Refusal.BUSY, sentence)
            return
        broker, owner = self._broker, client.owner
        service, wishes, deadline = plan.service, plan.wishes, now + plan.deadline
        names: list[Any] = read_names(ids)
        for index, id in enumerate(names, 2):
            job = broker.submit(service, message[index], client, wishes, now, deadline=deadline, id=id, owner=owner)
            if job is None:
                client.refused.append(id)
                names[index - 2] = b""
        if plan.wants_accept:
            taken = [id for id in names if id]
            if taken:
                self._line.send(client.peer, write_list(ACCEPTED, taken))  # type: ignore[arg-type]

    def _plan(self, head: Frame) -> Plan:
        order = read_order(head)
        options = self._options
        timeout = order.job_timeout or (inf if order.deadline else options.job_timeout or inf)
        wishes = Wishes(
            queue_timeout=order.queue_timeout or options.queue_timeout or inf,
            job_timeout=timeout,
            attempts=order.attempts or options.attempts,
            priority=DEFAULT_PRIORITY if order.priority == UNSAID_PRIORITY else order.priority,
            waits=bool(order.flags & Flag.WAIT),
            orphan_grace=options.resume,
            streams=not order.flags & Flag.WHOLE,
        )
        plan = Plan(order, wishes)
        if len(head) <= LONGEST_PLAN:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            self._plans[bytes(head)] = plan
        return plan

    def _cancel(self, client: Client, message: Message, now: float) -> None:
        for id in read_list(message):
            job = client.open_job(JobId(id))
            if job is not None:
                self._broker.withdraw(job, now, "cancelled by its caller")

    def _ack(self, client: Client, message: Message, now: float) -> None:
        client.heard(read_list(message))

    def _resume(self, client: Client, message: Message, now: float) -> None:
        """Tell it again what it misses, and what never came."""
        peer = client.peer
        assert peer is not None
        again: dict[bytes, list[Frame]] = {}
        missing: list[bytes] = []
        kept = client.kept_messages()
        for id in read_list(message):
            if client.open_job(JobId(id)) is not None:
                continue
            if id in kept:
                frames, connection = kept[id]
                if connection != client.connection:
                    again[id] = frames or write_failed(Outcome.LOST, id, "", NOT_KEPT)
            else:
                missing.append(id)
        client.heard(list(again))
        for id, frames in again.items():  # from now on these are the last ones that were told
            self._tell(client, id, frames)
        if missing:
            self._line.send(peer, write_list(MISSING, missing))

    def _abandon(self, client: Client, now: float) -> None:
        """It will not come back: what waits is withdrawn at once, what runs may end (R18, R19)."""
        self._sessions.forget(client)
        client.secret = ""
        self._broker.caller_gone(client, now)

    def _refuse(self, client: Client, id: bytes, type: str, sentence: str) -> None:
        self._broker.counters.refused += 1
        self._tell(client, id, write_failed(Outcome.REFUSED, id, type, sentence))

    def _answer(self, answer: Answer) -> None:
        client: Client = answer.caller  # type: ignore[assignment]
        job = answer.job
        if job is None:
            id = client.refused.popleft()
        else:
            id = job.id
            client.remove_job(job)
        if answer.outcome is not DONE:
            self._tell(client, id, _failed(id, answer))
            return
        if not client.done:
            if not self._told:
                self._line.at_end_of_turn(self._send_results)
            self._told.append(client)
        client.done.append(id)
        client.results.append(answer.result)

    def _send_results(self, now: float) -> None:
        """What the turn brought for each client, in one message."""
        told, self._told = self._told, []
        max_bytes = self._options.max_kept_bytes
        for client in told:
            ids, results = client.done, client.results
            client.done, client.results = [], []
            size = size_of(results)
            if client.secret:
                client.keep(Outcomes(ids, results, size), max_bytes)
            if client.peer is not None:
                most = MOST_NAMES if size <= BATCH_BYTES else 1
                for start in range(0, len(ids), most):
                    end = start + most
                    self._line.send(client.peer, write_result(ids[start:end], results[start:end]))

    def _tell(self, client: Client, id: bytes, frames: list[Frame]) -> None:
        if client.secret and client.open_job(JobId(id)) is None:  # else it is refused a second job of that id
            size = size_of(frames) - len(frames[0])
            client.keep(Outcomes([id], [], size, frames), self._options.max_kept_bytes)
        if client.peer is not None:
            self._line.send(client.peer, frames)

    def _pass_on(self, effect: Progress) -> None:
        client: Client = effect.caller  # type: ignore[assignment]
        attempt = effect.attempt
        if client.peer is not None:
            frames = write_report(attempt.job.id, effect.payload, is_part=effect.is_part, attempt=attempt.number)
            self._line.send(client.peer, frames)

    # ---------------------------------------------------------------- workers

    def _welcome_worker(self, peer: Peer, hello: Hello, now: float) -> None:
        guest = Worker(peer, hello.name or peer.label)
        terms = self._terms.get((hello.capacity, hello.returns))
        if terms is None:
            options = self._options
            terms = Terms(
                lease=options.lease,
                may_refuse=True,
                capacity=hello.capacity,
                unproven_limit=options.unproven_limit,
                ends_with_connection=True,
                may_return=hello.returns,
                max_payload=self._max_payload,
            )
            self._terms[hello.capacity, hello.returns] = terms
        worker = self._broker.join(self, guest, guest.name, hello.services, terms, now)
        if worker is None:
            raise Malformed("malformed", "services that cannot be offered: too many, or not names")
        guest.worker = worker
        peer.guest = guest
        self._welcome(peer, Role.WORKER)
        self._line.remark(
            "worker joined", peer=peer, worker=guest.name, service=", ".join(hello.services), capacity=hello.capacity
        )
        self._line.when_settled(peer, partial(self._broker.idle, worker))

    def _result(self, guest: Worker, message: Message, now: float) -> None:
        broker, ledger = self._broker, self._broker.ledger
        running: dict[Any, Attempt] = guest.worker.running if guest.worker is not None else {}
        for index, token in enumerate(read_result(message), 1):
            attempt = running.get(token) or guest.attempt(token) or self._stranded(token)
            if attempt is not None:
                broker.succeed(attempt, message[index], now)
            elif not ledger.is_loading or not ledger.early.keep(Token(token), message[index]):
                self._broker.counters.late_results += 1

    def _failed(self, guest: Worker, message: Message, now: float) -> None:
        failed = read_failed(message)
        attempt = guest.attempt(failed.name) or self._stranded(failed.name)
        if attempt is None:
            self._broker.counters.late_results += 1
            return
        reason = f"{failed.type}: {failed.message}" if failed.type else failed.message
        failure = reported_failure(failed.type, failed.message, failed.detail)
        outcome = Outcome.LOST if failed.outcome is Outcome.LOST else Outcome.FAILED
        self._broker.fail(attempt, reason, now, failure, outcome)

    def _stranded(self, token: bytes) -> Attempt | None:
        """R107: given out by an earlier run of the broker, to a worker that has gone on with it."""
        return self._broker.attempts.claim_stranded(Token(token))

    def _report(self, guest: Worker, message: Message, now: float) -> None:
        token, payload = read_report(message)
        attempt = guest.attempt(token)
        if attempt is not None:
            self._broker.progress(attempt, payload, now, is_part=message[0][0] == PART)

    def _return(self, guest: Worker, message: Message, now: float) -> None:
        for token in read_list(message):
            attempt = guest.attempt(token)
            if attempt is not None:
                self._broker.undelivered(attempt, now)

    def _drain(self, guest: Worker, message: Message, now: float) -> None:
        expect_frames(message, 1)
        if guest.worker is not None and guest.worker.state is not DRAINING:
            self._line.remark("worker leaves", peer=guest.peer, worker=guest.name)
            self._broker.drain(guest.worker, now)

    def _leave(self, guest: Worker, reason: str, now: float, unseen: Sequence[Attempt] = ()) -> None:
        worker, guest.worker = guest.worker, None
        if worker is not None:
            self._line.remark("worker left", peer=guest.peer, worker=guest.name, reason=reason)
            self._broker.leave(worker, now, reason, unseen)

    def _dismiss(self, effect: Dismiss) -> None:
        guest: Worker = effect.worker.party
        if effect.worker.state is GONE:
            guest.worker = None
            guest.given = []
        guest.farewell = effect.reason  # if it is not gone yet, it is when `lost` tells what never left us (R8)
        self._line.remark("worker dismissed", peer=guest.peer, worker=guest.name, reason=effect.reason)
        self._part(guest.peer, effect.reason, is_final=effect.farewell.is_final)

    def _recall(self, attempt: Attempt, reason: str, now: float) -> None:
        guest: Worker = attempt.worker.party
        if attempt in guest.given:  # it has not left us: nobody need be told
            guest.given.remove(attempt)
            self._broker.undelivered(attempt, now)
        else:
            self._line.send(guest.peer, write_recall(attempt.token, reason))

    def _send_all_jobs(self, now: float) -> None:
        gave, self._gave = self._gave, []
        for guest in gave:
            self._send_jobs(guest, now)

    def _send_jobs(self, guest: Worker, now: float) -> None:
        """What the turn gave a worker: one message for each service, unless they are large."""
        given, guest.given = guest.given, []
        while given:
            service = given[0].job.service
            batch = [attempt for attempt in given if attempt.job.service is service]
            if len(batch) < len(given):
                given = [attempt for attempt in given if attempt.job.service is not service]
            else:
                given = []
            payloads = [attempt.job.payload for attempt in batch]
            if size_of(payloads) > BATCH_BYTES and len(batch) > 1:
                for attempt in batch:
                    self._line.send(guest.peer, _jobs([attempt], [attempt.job.payload], now), [attempt])
            else:
                self._line.send(guest.peer, _jobs(batch, payloads, now), batch)


def _jobs(batch: Sequence[Attempt], payloads: Sequence[Frame], now: float) -> list[Frame]:
    records = []
    for attempt in batch:
        job = attempt.job
        due = attempt.due if attempt.due < job.deadline else job.deadline
        records.append(write_record(attempt.token, job.id, attempt.number, due - now))
    return write_jobs(batch[0].job.service.name, records, payloads)


def _failed(id: bytes, answer: Answer) -> list[Frame]:
    """FAILED for a client, with its worker's failure if there is one."""
    failure = answer.failure
    if failure is None or answer.refusal is not None:
        return write_failed(answer.outcome, id, answer.refusal or "", answer.reason)
    return write_failed(answer.outcome, id, failure.type, failure.message, failure.traceback)
