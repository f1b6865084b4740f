"""Clients of one listener: their jobs, from SUBMIT to RESULT or FAILED.

The client chooses the id of a job. A client session outlives its connection for a while (`client_sessions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dragoman.carriers.carrier import Frame, Message, TooLarge, size_of
from dragoman.carriers.malformed import Malformed
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome
from dragoman.core.infinity import inf
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.model import JobId
from dragoman.core.options import DEFAULT_PRIORITY, JobOptions
from dragoman.core.oversize import over_max_payload
from dragoman.core.recipients import Recipient, dialect_of
from dragoman.core.recording import from_caller, submitted, to_caller
from dragoman.core.rights import ADMINISTER, CALL, SEE
from dragoman.core.states import DONE, Outcome, RefusalReason
from dragoman.dialects.interface import BrokerIO, Connection
from dragoman.dialects.native.client_sessions import ClientSession, ClientSessions, UnacknowledgedOutcomes
from dragoman.dialects.native.codec import (
    read_list,
    read_names,
    read_order,
    write_bye,
    write_failed,
    write_list,
    write_report,
    write_result,
)
from dragoman.dialects.native.extras import read_extras
from dragoman.dialects.native.messages import (
    ACCEPTED,
    ACK,
    ASK,
    BATCH_BYTES,
    CANCEL,
    MISSING,
    MOST_NAMES,
    NAME,
    RESUME,
    SUBMIT,
    TOO_LARGE,
    UNSAID_PRIORITY,
    Flag,
    Hello,
    SubmitHeader,
)
from dragoman.dialects.native.operations import Operations, PendingOperations
from dragoman.dialects.native.options import ListenerOptions

MOST_PARSED: Final = 1024  # different heads of SUBMIT that are cached
LONGEST_PARSED: Final = 256  # bytes; longer heads are not cached
BACKGROUND: Final = "a background job is submitted with ASK and the operation 'enqueue', not with SUBMIT"
NOT_KEPT: Final = "its outcome was not kept: too many bytes of outcomes (max_kept_bytes)"
GRACE: Final = 10.0  # seconds after a pause of the broker in which disconnected clients can come back (D13)


class ParsedSubmit:
    """A parsed head of SUBMIT."""

    __slots__ = ("deadline", "has_extras", "is_background", "options", "service", "wants_accept")

    def __init__(self, order: SubmitHeader, job_options: JobOptions) -> None:
        self.service = order.service
        self.deadline = order.deadline or inf
        self.options = job_options
        self.wants_accept = bool(order.flags & Flag.ACCEPT)
        self.is_background = bool(order.flags & Flag.BACKGROUND)
        self.has_extras = bool(order.flags & Flag.EXTRAS)


class Clients:
    """The clients of one listener."""

    __slots__ = (
        "_broker",
        "_io",
        "_max_payload",
        "_options",
        "_parsed",
        "_recipient",
        "_with_results",
        "handlers",
        "operations",
        "sessions",
    )

    def __init__(
        self,
        recipient: Recipient,
        broker: Broker,
        io: BrokerIO,
        options: ListenerOptions,
        operations: Operations | None,
        max_payload: int,
    ) -> None:
        """`recipient` receives the effects for these clients."""
        self._max_payload = max_payload
        self._recipient = recipient
        self._broker = broker
        self._io = io
        self._options = options
        self._parsed: dict[bytes, ParsedSubmit] = {}
        self._with_results: list[ClientSession] = []  # clients with results to send at the end of this iteration
        self.sessions = ClientSessions(options.max_sessions)
        self.operations = PendingOperations(operations, io, max_payload)
        self.handlers: Mapping[int, Callable[[ClientSession, Message, float], None]] = {
            SUBMIT: self._submit,
            CANCEL: self._cancel,
            ACK: self._ack,
            RESUME: self._resume,
            ASK: self.operations.receive,
        }

    # ---------------------------------------------------------------- connections

    def forbidden(self, peer: Connection) -> str | None:
        """Return the reason if the principal of a connection has no right that a client can use, or None."""
        principal = peer.owner.principal
        if any(principal.rights.may_some(each) for each in (CALL, SEE, ADMINISTER)):
            return None
        self._broker.refused_rights.note(principal, CALL, ("*",), dialect_of(self._recipient))
        return f"{principal.name} may not call, see or administer any service"

    def enter(self, peer: Connection, hello: Hello, now: float) -> tuple[ClientSession, bool]:
        """Return the session of a client that sent HELLO, and whether it resumes an earlier one."""
        options = self._options
        session = hello.session if options.client_resume_timeout > 0 else ""
        client = self.sessions.take(session + hello.epoch, peer.owner.principal) if session else None
        resumed = client is not None
        if client is None:  # also if it is known, but its WELCOME never arrived: then it means an earlier one
            epoch = self._broker.entropy.token().hex() if session else ""
            window = min(hello.window or options.window, options.window)
            client = ClientSession(self._recipient, peer.owner, session + epoch, epoch, window)
            self.sessions.enter(client)
        elif client.peer is not None:  # the former connection is dead, but its end was not noticed
            self._broker.counters.takeovers += 1
            self.operations.leave(client, now)
            former, client.peer = client.peer, None
            former.remote = None
            self._io.close(former, "its client came back on a new connection")
        client.peer = peer
        client.belong_to(peer.owner)
        client.edition = hello.edition
        client.has_extras = hello.extras
        client.connection += 1
        peer.remote = client
        self._broker.availability.caller_back(client)
        return client, resumed

    def lost(self, client: ClientSession, now: float) -> None:
        """Keep the session of a client whose connection ended: it may come back for a while."""
        self.operations.leave(client, now)
        client.peer = None
        if not client.secret or self._options.client_resume_timeout <= 0:
            self._abandon(client, now)
            return
        self._broker.availability.caller_away(client, now)
        for forgotten in self.sessions.set_away(client, now + self._options.client_resume_timeout):
            self._abandon(forgotten, now)

    def leave(self, client: ClientSession) -> None:
        """Forget the session of a client that sent BYE: it does not come back."""
        self.sessions.forget(client)
        client.secret = ""

    def tick(self, now: float) -> float:
        """Abandon clients that did not come back in time. Returns the time of the next one."""
        due = self.sessions.next_due()
        if due > now:
            return due
        judged = self._broker.resumed_at + min(GRACE, self._options.client_resume_timeout)
        if judged > now:
            return judged
        for client in self.sessions.overdue(now):
            self._abandon(client, now)
        return self.sessions.next_due()

    def say_goodbye(self, reason: str) -> None:
        """Tell the clients that the broker stops."""
        for client in self.sessions.present:
            if client.peer is not None:
                self._io.send(client.peer, write_bye(reason, is_final=False))
                self._io.close(client.peer, reason)

    # ---------------------------------------------------------------- messages

    def receive_large(self, client: ClientSession, kind: int, message: TooLarge, sentence: str) -> None:
        """Refuse a message over the limit, which the carrier has dropped except for its leading frames."""
        peer = client.peer
        assert peer is not None
        if kind == SUBMIT and len(message.frames) > 1:
            ids = read_names(message.frames[1])
            self._io.bad_message(peer, TOO_LARGE, sentence)
            for id in ids:
                self._refuse(client, id, TOO_LARGE, sentence)
        elif kind == ASK:
            self.operations.receive_large(client, message, sentence)
            self._io.bad_message(peer, TOO_LARGE, sentence)
        else:
            raise Malformed(TOO_LARGE, sentence)

    def _submit(self, client: ClientSession, message: Message, now: float) -> None:
        head = message[0]
        parsed = self._parsed.get(head) or self._parse(head)  # type: ignore[arg-type]
        ids = message[1] if len(message) > 2 else b""
        first = 2  # index of the first payload
        extras = None
        if parsed.has_extras and client.has_extras and ids:
            first = 3
            extras = read_extras(message[2])
        count = len(message) - first
        if len(ids) != count * NAME:
            raise Malformed(
                "malformed", f"a SUBMIT has {len(ids)} bytes of ids for {count} payloads; {NAME} each are required"
            )
        if parsed.is_background:
            for id in read_names(ids):
                self._refuse(client, id, RefusalReason.INVALID, BACKGROUND)
            return
        open_jobs = client.count_open()
        if open_jobs + count > client.window:
            sentence = f"the client has {open_jobs} of {client.window} jobs in progress (window)"
            for id in read_names(ids):
                self._refuse(client, id, RefusalReason.BUSY, sentence)
                self._broker.counters.drop(
                    self._broker.worker_registry.names.counted_as(parsed.service), RefusalReason.BUSY, sentence
                )
            return
        broker = self._broker
        service, job_options, deadline = parsed.service, parsed.options, now + parsed.deadline
        names: list[Any] = read_names(ids)
        for index, id in enumerate(names, first):
            size = len(message[index])
            if size > self._max_payload:
                self._refuse(client, id, TOO_LARGE, over_max_payload("payload", size, self._max_payload))
                names[index - first] = b""
                continue
            job = broker.submit(
                service, message[index], client, job_options, now, deadline=deadline, id=id, extras=extras
            )
            if job is None:
                client.refused.append(id)
                names[index - first] = b""
            elif job.conversation is not None:
                submitted(job, client, "SUBMIT", len(message[index]), now)
                if parsed.wants_accept:
                    to_caller(job, client, "ACCEPTED", 0, now)
        if parsed.wants_accept:
            taken = [id for id in names if id]
            if taken:
                self._io.send(client.peer, write_list(ACCEPTED, taken))  # type: ignore[arg-type]

    def _parse(self, head: Frame) -> ParsedSubmit:
        order = read_order(head)
        options = self._options
        timeout = order.job_timeout or (inf if order.deadline else options.job_timeout or inf)
        job_options = JobOptions(
            queue_timeout=order.queue_timeout or options.queue_timeout or inf,
            job_timeout=timeout,
            attempts=order.attempts or options.attempts,
            priority=DEFAULT_PRIORITY if order.priority == UNSAID_PRIORITY else order.priority,
            waits=bool(order.flags & Flag.WAIT),
            orphan_grace=options.client_resume_timeout,
            streams=not order.flags & Flag.WHOLE,
        )
        parsed = ParsedSubmit(order, job_options)
        if len(head) <= LONGEST_PARSED:
            if len(self._parsed) >= MOST_PARSED:
                self._parsed.clear()
            self._parsed[bytes(head)] = parsed
        return parsed

    def _cancel(self, client: ClientSession, message: Message, now: float) -> None:
        for id in read_list(message):
            job = client.open_job(JobId(id))
            if job is not None:
                from_caller(job, client, "CANCEL", 0, now)
                self._broker.withdraw(job, now, "cancelled by its caller")

    def _ack(self, client: ClientSession, message: Message, now: float) -> None:
        client.acknowledged(read_list(message))

    def _resume(self, client: ClientSession, message: Message, now: float) -> None:
        """Send outcomes again that the client has not received, and the ids of jobs that never arrived."""
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
        client.acknowledged(list(again))
        for id, frames in again.items():  # from now on these are the last ones that were sent
            self._send_outcome(client, id, frames)
        if missing:
            self._io.send(peer, write_list(MISSING, missing))

    def _abandon(self, client: ClientSession, now: float) -> None:
        """Drop a client that does not come back: waiting jobs are cancelled, running ones may end (R18, R19)."""
        self.sessions.forget(client)
        client.secret = ""
        self._broker.caller_gone(client, now)

    # ---------------------------------------------------------------- outcomes

    def answer(self, answer: DeliverOutcome, now: float) -> None:
        client: ClientSession = answer.caller  # type: ignore[assignment]
        job = answer.job
        if job is None:
            id = client.refused.popleft()
        else:
            id = job.id
            client.remove_job(job)
            if job.conversation is not None:
                to_caller(job, client, "RESULT" if answer.outcome is DONE else "FAILED", len(answer.result), now)
        if answer.outcome is not DONE:
            self._send_outcome(client, id, _failed(id, answer))
            return
        if not client.done:
            if not self._with_results:
                self._io.call_before_write(self._send_results)
            self._with_results.append(client)
        client.done.append(id)
        client.results.append(answer.result)

    def _send_results(self, now: float) -> None:
        """Send each client the results of this iteration, in one message."""
        clients, self._with_results = self._with_results, []
        max_bytes = self._options.max_kept_bytes
        for client in clients:
            ids, results = client.done, client.results
            client.done, client.results = [], []
            size = size_of(results)
            if client.secret:
                client.keep(UnacknowledgedOutcomes(ids, results, size), max_bytes)
            if client.peer is not None:
                most = MOST_NAMES if size <= BATCH_BYTES else 1
                for start in range(0, len(ids), most):
                    end = start + most
                    self._io.send(client.peer, write_result(ids[start:end], results[start:end]))

    def _refuse(self, client: ClientSession, id: bytes, type: str, sentence: str) -> None:
        self._broker.counters.refused += 1
        self._send_outcome(client, id, write_failed(Outcome.REFUSED, id, type, sentence))

    def _send_outcome(self, client: ClientSession, id: bytes, frames: list[Frame]) -> None:
        if client.secret and client.open_job(JobId(id)) is None:  # otherwise a second job of that id was refused
            size = size_of(frames) - len(frames[0])
            client.keep(UnacknowledgedOutcomes([id], [], size, frames), self._options.max_kept_bytes)
        if client.peer is not None:
            self._io.send(client.peer, frames)

    def send_report(self, effect: DeliverProgress, now: float) -> None:
        client: ClientSession = effect.caller  # type: ignore[assignment]
        attempt = effect.attempt
        to_caller(attempt.job, client, "PART" if effect.is_part else "PROGRESS", len(effect.payload), now)
        if client.peer is not None:
            frames = write_report(attempt.job.id, effect.payload, is_part=effect.is_part, attempt=attempt.number)
            self._io.send(client.peer, frames)


def _failed(id: bytes, answer: DeliverOutcome) -> list[Frame]:
    """Return FAILED for a client, with its worker's failure if there is one."""
    failure = answer.failure
    if failure is None or answer.refusal is not None:
        return write_failed(answer.outcome, id, answer.refusal or "", answer.reason)
    return write_failed(answer.outcome, id, failure.type, failure.message, failure.traceback)
