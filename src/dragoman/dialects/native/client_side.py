"""The client's side of the native dialect: many jobs at once, across any number of connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Final

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.core.infinity import inf
from dragoman.core.job_extras import with_tenant
from dragoman.dialects import sides
from dragoman.dialects.heartbeats import HeartbeatTimers
from dragoman.dialects.native.client_operations import ClientOperations, PendingOperation
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
    write_bye,
    write_hello,
    write_list,
    write_order,
)
from dragoman.dialects.native.extras import TENANT, submit_with
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
from dragoman.dialects.sides import ClientIO, Failure, JobExtras, Outcome, SubmitOptions

ACK_AFTER: Final = 256 << 10  # bytes of results
BATCH_BYTES: Final = 1 << 20  # of payloads in one SUBMIT
LONGEST: Final = 49 * 86_400.0  # seconds; longer times are sent as no limit would be
INVALID: Final = "invalid"
NO_TENANTS: Final = "this broker does not know tenants: upgrade it, or submit the job without a tenant"
MOST_HEADS_KEPT: Final = 1024  # of SUBMIT, encoded once for all jobs with the same options


class PendingCall:
    """A job without an outcome."""

    __slots__ = ("extras", "head", "is_cancelled", "is_sent", "job_ref", "payload")

    def __init__(self, job_ref: Hashable, head: bytes, payload: Frame, extras: JobExtras | None) -> None:
        self.job_ref = job_ref  # None: forgotten by its caller, but counted until its outcome comes
        self.head = head
        self.payload = payload
        self.extras = extras
        self.is_sent = False
        self.is_cancelled = False


class ClientSide(sides.ClientSide):
    """The client's side: many jobs at once, across any number of connections.

    `submit` only stores a job; `flush` sends as many as the window allows, several in one message. `session` and the
    ids of jobs are random and passed in.
    """

    patience = inf
    hint = ""

    def __init__(self, options: ClientOptions, io: ClientIO, session: str, name: str = "") -> None:
        self._io = io
        resumes = session if options.resume else ""
        self._hello = Hello(
            Role.CLIENT, name=name, session=resumes, window=options.window, edition=EDITION, extras=True
        )
        self._welcome: Welcome | None = None  # None: not connected, or no WELCOME yet
        self._max_payload = 0  # 0: not known yet
        self._keeps_sessions = False
        self._is_open = False
        self._calls: dict[bytes, PendingCall] = {}  # all without an outcome
        self._unsent: deque[bytes] = deque()  # those that the broker has not got; some may have ended
        self._in_flight = 0
        self._operations = ClientOperations()
        self._heads: dict[SubmitOptions, bytes] = {}
        self._unacknowledged: list[bytes] = []
        self._unacknowledged_bytes = 0
        self._timers = HeartbeatTimers(BEFORE_WELCOME.heartbeat, BEFORE_WELCOME.lease)

    @property
    def outlives_connections(self) -> bool:
        return True

    @property
    def is_ready(self) -> bool:
        return self._welcome is not None

    # ---------------------------------------------------------------- calls

    def call(self, job_ref: Hashable, service: str, payload: Frame, timeout: float | None, now: float) -> None:
        raise AssertionError("native jobs have ids: use submit")

    def submit(
        self,
        job_ref: Hashable,
        submit_options: SubmitOptions,
        payload: Frame,
        id: bytes,
        now: float,
        extras: JobExtras | None = None,
    ) -> None:
        if len(payload) > self._max_payload > 0:
            sentence = f"a payload of {len(payload)} bytes is over the broker's max_payload {self._max_payload}"
            self._io.ended(job_ref, Outcome.REFUSED, sentence, refusal=TOO_LARGE)
            return
        head = self._heads.get(submit_options) or self._head(submit_options)
        if submit_options.tenant:
            extras = with_tenant(extras, submit_options.tenant)
        self._calls[id] = PendingCall(job_ref, head, payload, extras)
        self._unsent.append(id)

    def ask(
        self,
        job_ref: Hashable,
        operation: str,
        request: bytes,
        payload: Frame,
        id: bytes,
        now: float,
        extras: JobExtras | None = None,
        number: Callable[[], str] | None = None,
    ) -> None:
        """Send an operation. Its number on the wire is the end of its id, which is random."""
        size = len(payload)
        if len(request) > MOST_TEXT or size > self._max_payload > 0:
            sentence = f"an operation of {size} bytes is over the broker's max_payload {self._max_payload}"
            if len(request) > MOST_TEXT:
                sentence = f"a request of {len(request)} bytes of JSON is over the limit of {MOST_TEXT}"
            self._io.operation_failed(job_ref, TOO_LARGE, sentence)
            return
        self._operations.add(id[-NUMBER:], PendingOperation(job_ref, operation, request, payload, extras, number))

    def is_sent(self, id: bytes) -> bool:
        call = self._calls.get(id)
        return call is not None and call.is_sent

    def cancel(self, id: bytes, now: float) -> None:
        call = self._calls.get(id)
        if call is None:
            return
        if not call.is_sent:
            del self._calls[id]
            self._io.ended(call.job_ref, Outcome.CANCELLED, "the job had not been sent yet")
            return
        call.is_cancelled = True
        if self._welcome is not None:  # otherwise it is sent after the next WELCOME
            self._send(write_list(CANCEL, [id]), now)

    def forget(self, job_ref: Hashable, id: bytes, now: float) -> None:
        """Cancel jobs that were sent; they count for the window until their outcome comes."""
        call = self._calls.get(id)
        if call is not None and call.is_sent:
            call.job_ref = None
            call.payload = b""
            self.cancel(id, now)
        elif call is not None:
            del self._calls[id]
        else:
            self._operations.forget(id[-NUMBER:])

    def flush(self, now: float) -> None:
        """Send as many jobs and operations as the window allows."""
        welcome = self._welcome
        if welcome is None:
            return
        unsent = self._unsent
        while unsent and self._in_flight < welcome.window:
            room = min(welcome.window - self._in_flight, MOST_NAMES)
            self._send_batch(room, welcome.extras, now)
        for frames in self._operations.unsent(welcome):
            self._send(frames, now)

    def bye(self) -> None:
        """Leave for good: jobs in progress are cancelled."""
        if self._is_open:
            if self._welcome is not None:
                self._send_list(CANCEL, [id for id, call in self._calls.items() if call.is_sent], 0.0)
            self._io.send(write_bye("the client is closed", is_final=True))

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

    def _send_batch(self, room: int, understood: tuple[str, ...], now: float) -> None:
        """Send the first unsent job, and those after it with the same options. `understood`: names of extras."""
        unsent, calls = self._unsent, self._calls
        most_bytes = min(BATCH_BYTES, self._max_payload)
        ids: list[bytes] = []
        payloads: list[Frame] = []
        head = b""
        extras: JobExtras | None = None
        size = 0
        while unsent and len(ids) < room:
            call = calls.get(unsent[0])
            if call is None:  # cancelled meanwhile
                unsent.popleft()
                continue
            if call.extras is not None and call.extras.tenant and TENANT not in understood:
                self._io.ended(calls.pop(unsent.popleft()).job_ref, Outcome.REFUSED, NO_TENANTS, refusal=INVALID)
                continue
            size += len(call.payload)
            if not ids:
                head, extras = call.head, call.extras
            elif call.head != head or size > most_bytes or call.extras != extras:
                break
            call.is_sent = True
            ids.append(unsent.popleft())
            payloads.append(call.payload)
        if ids:
            self._in_flight += len(ids)
            frames: Sequence[Frame] = [head, b"".join(ids), *payloads]
            self._send(frames if extras is None else submit_with(frames, extras, understood), now)

    # ---------------------------------------------------------------- messages

    def opened(self, now: float) -> None:
        self._is_open = True
        self._timers.set_times(BEFORE_WELCOME.heartbeat, BEFORE_WELCOME.lease)
        self._timers.restart(now)
        self._send(write_hello(self._hello), now)

    def lost(self) -> None:
        self._is_open = False
        self._welcome = None
        self._operations.lost()
        if not self._keeps_sessions:
            self._abandon_sent("the connection to the broker ended; the job may have run")

    def receive(self, message: Message | TooLarge, now: float) -> None:
        """Handle a message. Raises Malformed if it cannot be parsed. Call `flush` after the last available message."""
        self._timers.received_at = now
        if isinstance(message, TooLarge):
            raise sides.response_too_large(message)
        kind = message[0][0] if message[0] else 0
        if kind == RESULT:
            for index, id in enumerate(read_result(message), 1):
                job_ref = self._end(id, len(message[index]))
                if job_ref is not None:
                    self._io.answered(job_ref, message[index])
            if self._unacknowledged_bytes >= ACK_AFTER:
                self._acknowledge(now)
        elif kind == FAILED:
            self._receive_failed(read_failed(message))
        elif kind in (PROGRESS, PART):
            id, payload = read_report(message)
            call = self._calls.get(id)
            if call is not None and call.job_ref is not None:
                self._io.reported(call.job_ref, payload, kind == PART, read_report_number(message[0]))
        elif kind == WELCOME:
            self._receive_welcome(read_welcome(message), now)
        elif kind == TELL:
            number, view, payload = read_tell(message)
            responder = self._operations.end(number)
            if responder is not None:
                self._io.told(responder, view, payload)
        elif kind == OBJECT:
            number, error, detail = read_object(message)
            responder = self._operations.end(number)
            if responder is not None:
                self._io.operation_failed(responder, error, detail)
        elif kind == MISSING:
            self._send_again(read_list(message))
        elif kind == BYE:
            self._io.reconnect(f"the broker sent BYE: {read_bye(message)[1]}")
        elif kind == ERROR:
            _, code, sentence = read_error(message)
            raise Malformed(code, f"the broker sent an error: {sentence}")
        elif kind not in (HEARTBEAT, ACCEPTED) and self._welcome is None:
            raise Malformed("unknown word", f"{kind:02x} came before WELCOME")

    def tick(self, now: float) -> float:
        if not self._is_open:
            return inf
        timers = self._timers
        if timers.is_silent(now):
            self._io.reconnect(NO_WELCOME if self._welcome is None else timers.silence)
            return inf
        if timers.is_due(now):
            self._send([bytes((HEARTBEAT,))], now)
        return timers.next_due()

    def _receive_welcome(self, welcome: Welcome, now: float) -> None:
        self._welcome = welcome
        self._timers.set_times(welcome.heartbeat, welcome.lease)
        self._hello = replace(self._hello, epoch=welcome.epoch)
        self._max_payload = welcome.max_payload
        self._keeps_sessions = bool(self._hello.session) and welcome.resume > 0
        if not welcome.resumed:
            self._abandon_sent("the broker lost the client's session; the job may have run")
        sent = [id for id, call in self._calls.items() if call.is_sent]
        self._in_flight = len(sent)
        self._send_list(RESUME, sent, now)
        self._send_list(CANCEL, [id for id in sent if self._calls[id].is_cancelled], now)

    def _send_list(self, kind: int, ids: Sequence[bytes], now: float) -> None:
        for start in range(0, len(ids), MOST_NAMES):
            self._send(write_list(kind, ids[start : start + MOST_NAMES]), now)

    def _abandon_sent(self, sentence: str) -> None:
        """End the jobs that were sent: they are lost with the session."""
        for id in [id for id, call in self._calls.items() if call.is_sent]:
            job_ref = self._end(id)
            if job_ref is not None:
                self._io.abandoned(job_ref, sentence)

    def _send_again(self, ids: Sequence[bytes]) -> None:
        """Send jobs again that the broker never received."""
        for id in reversed(ids):
            call = self._calls.get(id)
            if call is None or not call.is_sent:
                continue
            if call.is_cancelled:
                job_ref = self._end(id)
                if job_ref is not None:
                    self._io.ended(job_ref, Outcome.CANCELLED, "the job never reached the broker")
            else:
                self._in_flight -= 1
                call.is_sent = False
                self._unsent.appendleft(id)

    def _receive_failed(self, failed: Failed) -> None:
        job_ref = self._end(failed.name)
        if job_ref is None:
            return
        if failed.outcome is Outcome.REFUSED:
            self._io.ended(job_ref, failed.outcome, failed.message, refusal=failed.type)
        else:
            failure = Failure(failed.type, failed.message, failed.detail) if failed.type or failed.detail else None
            self._io.ended(job_ref, failed.outcome, failed.message, failure)

    def _end(self, id: bytes, size: int = 0) -> Hashable | None:
        """Remove an ended call with a result of `size` bytes. Returns its `job_ref`, None if it was forgotten."""
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
            self._send(write_list(ACK, ids), now)

    def _send(self, frames: Sequence[Frame], now: float) -> None:
        self._timers.sent_at = now
        self._io.send(frames)


def _seconds(seconds: float | None) -> float:
    return 0.0 if seconds is None else seconds if seconds == inf else min(seconds, LONGEST)
