"""A client's side of the native dialect: many jobs at once, over as many connections as it takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.infinity import inf
from dragoman.dialects import sides
from dragoman.dialects.heartbeats import HeartbeatTimers
from dragoman.dialects.native.codec import (
    read_bye,
    read_error,
    read_failed,
    read_list,
    read_object,
    read_report,
    read_report_number,
    read_result,
    read_tell,
    read_welcome,
    write_ask,
    write_bye,
    write_hello,
    write_list,
    write_order,
)
from dragoman.dialects.native.messages import (
    ACCEPTED,
    ACK,
    BYE,
    CANCEL,
    EDITION,
    ERROR,
    FAILED,
    HEARTBEAT,
    MISSING,
    MOST_NAMES,
    MOST_TEXT,
    NO_FLAGS,
    NUMBER,
    OBJECT,
    PART,
    PROGRESS,
    RESULT,
    RESUME,
    TELL,
    TOO_LARGE,
    UNSAID_PRIORITY,
    WELCOME,
    Failed,
    Flag,
    Hello,
    Role,
    SubmitHeader,
    Welcome,
)
from dragoman.dialects.native.options import ClientOptions
from dragoman.dialects.native.waiting import BEFORE_WELCOME, NO_WELCOME
from dragoman.dialects.sides import ClientIO, Failure, Outcome, SubmitOptions

ACK_AFTER: Final = 256 << 10  # bytes of results
BATCH_BYTES: Final = 1 << 20  # of payloads in one SUBMIT
LONGEST: Final = 49 * 86_400.0  # seconds that can be said; for ever is not much longer
MOST_HEADS_KEPT: Final = 1024  # of SUBMIT, written once for all jobs that ask for the same


class PendingCall:
    """A job under way."""

    __slots__ = ("head", "is_cancelled", "is_sent", "job_ref", "payload")

    def __init__(self, job_ref: Hashable, head: bytes, payload: Frame) -> None:
        self.job_ref = job_ref  # none: nobody waits for it any more, but it still counts until its outcome comes
        self.head = head
        self.payload = payload
        self.is_sent = False
        self.is_cancelled = False


class PendingOperation:
    """A question under way."""

    __slots__ = ("form", "is_asked", "job_ref", "payload", "text")

    def __init__(self, job_ref: Hashable, text: str, form: bytes, payload: Frame) -> None:
        self.job_ref = job_ref  # none: nobody waits for it any more, but it still counts until its answer comes
        self.text = text
        self.form = form
        self.payload = payload
        self.is_asked = False  # on this connection


class ClientSide(sides.ClientSide):
    """A client's side: many jobs at once, over as many connections as it takes.

    `submit` only notes a job; `flush` sends what the window has room for, many in one message. `session` is random, and
    so are the ids of jobs: they are passed in.
    """

    patience = inf
    hint = ""

    def __init__(self, options: ClientOptions, port: ClientIO, session: str, name: str = "") -> None:
        self._port = port
        self._hello = Hello(
            Role.CLIENT, name=name, session=session if options.resume else "", window=options.window, edition=EDITION
        )
        self._welcome: Welcome | None = None  # none: not connected, or not yet welcome
        self._max_payload = 0  # 0: the broker has never said
        self._keeps_sessions = False
        self._is_open = False
        self._calls: dict[bytes, PendingCall] = {}  # all that have no outcome yet
        self._unsent: deque[bytes] = deque()  # of these, what the broker has not got; some may be over by now
        self._in_flight = 0
        self._questions: dict[bytes, PendingOperation] = {}  # all that have no answer yet, by their numbers
        self._unasked: deque[bytes] = deque()  # of these, what the broker has not got by this connection
        self._asked = 0  # and how many it has got
        self._heads: dict[SubmitOptions, bytes] = {}
        self._unacknowledged: list[bytes] = []
        self._unacknowledged_bytes = 0
        self._signs = HeartbeatTimers(BEFORE_WELCOME.heartbeat, BEFORE_WELCOME.lease)

    @property
    def outlives_connections(self) -> bool:
        return True

    @property
    def is_ready(self) -> bool:
        return self._welcome is not None

    # ---------------------------------------------------------------- calls

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None:
        raise AssertionError("a job of this wire has an id: submit it")

    def submit(self, job_ref: Hashable, submit_options: SubmitOptions, payload: Frame, id: bytes, now: float) -> None:
        if len(payload) > self._max_payload > 0:
            sentence = f"a payload of {len(payload)} bytes is over the broker's max_payload {self._max_payload}"
            self._port.ended(job_ref, Outcome.REFUSED, sentence, refusal=TOO_LARGE)
            return
        self._calls[id] = PendingCall(job_ref, self._heads.get(submit_options) or self._head(submit_options), payload)
        self._unsent.append(id)

    def ask(self, job_ref: Hashable, question: str, form: bytes, payload: Frame, id: bytes, now: float) -> None:
        """The number of a request is the end of its id, which is random."""
        size = len(form) + len(payload)
        if len(form) > MOST_TEXT or size > self._max_payload > 0:
            sentence = f"a question of {size} bytes is over the broker's max_payload {self._max_payload}"
            if len(form) > MOST_TEXT:
                sentence = f"a form of {len(form)} bytes is over {MOST_TEXT}"
            self._port.operation_failed(job_ref, TOO_LARGE, sentence)
            return
        number = id[-NUMBER:]
        self._questions[number] = PendingOperation(job_ref, question, form, payload)
        self._unasked.append(number)

    def is_sent(self, id: bytes) -> bool:
        call = self._calls.get(id)
        return call is not None and call.is_sent

    def cancel(self, id: bytes, now: float) -> None:
        call = self._calls.get(id)
        if call is None:
            return
        if not call.is_sent:
            del self._calls[id]
            self._port.ended(call.job_ref, Outcome.CANCELLED, "it had not been sent yet")
            return
        call.is_cancelled = True
        if self._welcome is not None:  # else it is said when we are back
            self._say(write_list(CANCEL, [id]), now)

    def forget(self, job_ref: Hashable, id: bytes, now: float) -> None:
        """Cancel jobs that were sent; they count for the window until the broker has answered that."""
        call = self._calls.get(id)
        if call is not None and call.is_sent:
            call.job_ref = None
            call.payload = b""
            self.cancel(id, now)
        elif call is not None:
            del self._calls[id]
        else:
            self._forget_question(id[-NUMBER:])

    def flush(self, now: float) -> None:
        """Send what the window has room for."""
        welcome = self._welcome
        if welcome is None:
            return
        unsent = self._unsent
        while unsent and self._in_flight < welcome.window:
            room = min(welcome.window - self._in_flight, MOST_NAMES)
            self._send_batch(room, now)
        if self._unasked:
            self._send_questions(welcome.window, now)

    def bye(self) -> None:
        """We leave for good: what is under way is withdrawn."""
        if self._is_open:
            if self._welcome is not None:
                self._say_list(CANCEL, [id for id, call in self._calls.items() if call.is_sent], 0.0)
            self._port.send(write_bye("the client is closed", is_final=True))

    def _head(self, submit_options: SubmitOptions) -> bytes:
        if len(self._heads) >= MOST_HEADS_KEPT:
            self._heads.clear()
        order = SubmitHeader(
            submit_options.service,
            (Flag.WAIT if submit_options.waits else NO_FLAGS) | (Flag.WHOLE if submit_options.is_whole else NO_FLAGS),
            UNSAID_PRIORITY if submit_options.priority is None else submit_options.priority,
            submit_options.attempts or 0,
            *(
                _seconds(each)
                for each in (submit_options.timeout, submit_options.job_timeout, submit_options.queue_timeout)
            ),
        )
        head = self._heads[submit_options] = write_order(order)
        return head

    def _send_questions(self, window: int, now: float) -> None:
        unasked = self._unasked
        while unasked and self._asked < window:
            number = unasked.popleft()
            question = self._questions.get(number)
            if question is not None:  # else nobody waits for it any more
                question.is_asked = True
                self._asked += 1
                self._say(write_ask(number, question.text, question.form, question.payload), now)

    def _forget_question(self, number: bytes) -> None:
        question = self._questions.get(number)
        if question is not None and question.is_asked:
            question.job_ref = None
        elif question is not None:
            del self._questions[number]

    def _ask_again(self) -> None:
        """With the connection the broker has forgotten what was asked."""
        self._questions = {number: each for number, each in self._questions.items() if each.job_ref is not None}
        for question in self._questions.values():
            question.is_asked = False
        self._unasked = deque(self._questions)
        self._asked = 0

    def _end_question(self, number: bytes) -> Hashable:
        """The caller that waits for its answer, or None."""
        question = self._questions.pop(number, None)
        if question is None:
            return None
        self._asked -= question.is_asked
        return question.job_ref

    def _send_batch(self, room: int, now: float) -> None:
        """The first of those unsent, and those behind it that ask for the same."""
        unsent, calls = self._unsent, self._calls
        most_bytes = min(BATCH_BYTES, self._max_payload)
        ids: list[bytes] = []
        payloads: list[Frame] = []
        head = b""
        size = 0
        while unsent and len(ids) < room:
            call = calls.get(unsent[0])
            if call is None:  # cancelled meanwhile
                unsent.popleft()
                continue
            size += len(call.payload)
            if not ids:
                head = call.head
            elif call.head != head or size > most_bytes:
                break
            call.is_sent = True
            ids.append(unsent.popleft())
            payloads.append(call.payload)
        if ids:
            self._in_flight += len(ids)
            self._say([head, b"".join(ids), *payloads], now)

    # ---------------------------------------------------------------- the conversation

    def opened(self, now: float) -> None:
        self._is_open = True
        self._signs.agree(BEFORE_WELCOME.heartbeat, BEFORE_WELCOME.lease)
        self._signs.begin(now)
        self._say(write_hello(self._hello), now)

    def lost(self) -> None:
        self._is_open = False
        self._welcome = None
        self._ask_again()
        if not self._keeps_sessions:
            self._give_up("the connection to the broker ended; it may have run")

    def receive(self, message: Message | TooLarge, now: float) -> None:
        """Raises Malformed if it cannot be understood. Whoever calls this says `flush` when it has heard all."""
        self._signs.heard = now
        if isinstance(message, TooLarge):
            raise sides.answer_too_large(message)
        word = message[0][0] if message[0] else 0
        if word == RESULT:
            for index, id in enumerate(read_result(message), 1):
                job_ref = self._end(id, len(message[index]))
                if job_ref is not None:
                    self._port.answered(job_ref, message[index])
            if self._unacknowledged_bytes >= ACK_AFTER:
                self._acknowledge(now)
        elif word == FAILED:
            self._receive_failed(read_failed(message))
        elif word in (PROGRESS, PART):
            id, payload = read_report(message)
            call = self._calls.get(id)
            if call is not None and call.job_ref is not None:
                self._port.reported(call.job_ref, payload, word == PART, read_report_number(message[0]))
        elif word == WELCOME:
            self._receive_welcome(read_welcome(message), now)
        elif word == TELL:
            number, view, payload = read_tell(message)
            responder = self._end_question(number)
            if responder is not None:
                self._port.told(responder, view, payload)
        elif word == OBJECT:
            number, kind, detail = read_object(message)
            responder = self._end_question(number)
            if responder is not None:
                self._port.operation_failed(responder, kind, detail)
        elif word == MISSING:
            self._send_again(read_list(message))
        elif word == BYE:
            self._port.reconnect(f"the broker said goodbye: {read_bye(message)[1]}")
        elif word == ERROR:
            _, code, sentence = read_error(message)
            raise Malformed(code, f"the broker says: {sentence}")
        elif word not in (HEARTBEAT, ACCEPTED) and self._welcome is None:
            raise Malformed("unknown word", f"{word:02x} came before WELCOME")

    def tick(self, now: float) -> float:
        if not self._is_open:
            return inf
        signs = self._signs
        if signs.is_silent(now):
            self._port.reconnect(NO_WELCOME if self._welcome is None else signs.silence)
            return inf
        if signs.is_due(now):
            self._say([bytes((HEARTBEAT,))], now)
        return signs.next_due()

    def _receive_welcome(self, welcome: Welcome, now: float) -> None:
        self._welcome = welcome
        self._signs.agree(welcome.heartbeat, welcome.lease)
        self._hello = replace(self._hello, epoch=welcome.epoch)
        self._max_payload = welcome.max_payload
        self._keeps_sessions = bool(self._hello.session) and welcome.resume > 0
        if not welcome.resumed:
            self._give_up("the broker that had it is gone; it may have run")
        sent = [id for id, call in self._calls.items() if call.is_sent]
        self._in_flight = len(sent)
        self._say_list(RESUME, sent, now)
        self._say_list(CANCEL, [id for id in sent if self._calls[id].is_cancelled], now)

    def _say_list(self, word: int, ids: Sequence[bytes], now: float) -> None:
        for start in range(0, len(ids), MOST_NAMES):
            self._say(write_list(word, ids[start : start + MOST_NAMES]), now)

    def _give_up(self, sentence: str) -> None:
        """Give up the jobs that were sent: they are gone with the conversation."""
        for id in [id for id, call in self._calls.items() if call.is_sent]:
            job_ref = self._end(id)
            if job_ref is not None:
                self._port.abandoned(job_ref, sentence)

    def _send_again(self, ids: Sequence[bytes]) -> None:
        """They never came to the broker."""
        for id in reversed(ids):
            call = self._calls.get(id)
            if call is None or not call.is_sent:
                continue
            if call.is_cancelled:
                job_ref = self._end(id)
                if job_ref is not None:
                    self._port.ended(job_ref, Outcome.CANCELLED, "it never came to the broker")
            else:
                self._in_flight -= 1
                call.is_sent = False
                self._unsent.appendleft(id)

    def _receive_failed(self, failed: Failed) -> None:
        job_ref = self._end(failed.name)
        if job_ref is None:
            return
        if failed.outcome is Outcome.REFUSED:
            self._port.ended(job_ref, failed.outcome, failed.message, refusal=failed.type)
        else:
            failure = Failure(failed.type, failed.message, failed.detail) if failed.type or failed.detail else None
            self._port.ended(job_ref, failed.outcome, failed.message, failure)

    def _end(self, id: bytes, size: int = 0) -> Hashable | None:
        """Remove a call that has ended, with a result of `size` bytes. Returns its ticket, or None if nobody waits."""
        call = self._calls.pop(id, None)
        if call is None:
            return None
        self._in_flight -= 1
        self._unacknowledged.append(id)
        self._unacknowledged_bytes += size
        if len(self._unacknowledged) >= MOST_NAMES:
            del self._unacknowledged[: -MOST_NAMES // 2]
        return call.job_ref

    def _acknowledge(self, now: float) -> None:
        ids, self._unacknowledged, self._unacknowledged_bytes = self._unacknowledged, [], 0
        if ids and self._hello.session:
            self._say(write_list(ACK, ids), now)

    def _say(self, frames: Sequence[Frame], now: float) -> None:
        self._signs.said = now
        self._port.send(frames)


def _seconds(said: float | None) -> float:
    return 0.0 if said is None else said if said == inf else min(said, LONGEST)
