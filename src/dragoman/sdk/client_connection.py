"""A client's connection to its broker: runs the client side of a dialect, and reconnects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Protocol, cast

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.sides import (
    FORBIDDEN,
    NOT_ADMITTED,
    UNAUTHENTICATED,
    ClientSide,
    Failure,
    JobExtras,
    Outcome,
    SubmitOptions,
)
from dragoman.sdk.candidates import Candidate, Candidates, Round
from dragoman.sdk.errors import (
    BrokerUnavailable,
    DragomanError,
    JobFailed,
    NotAllowed,
    OperationError,
    WrongDialect,
    error_from,
)
from dragoman.sdk.operation import OperationCall
from dragoman.sdk.outgoing import OutgoingConnection, handshake_problem, open_connection
from dragoman.sdk.recognition import SILENCE_LIMIT, SUSPICIOUS
from dragoman.sdk.targets import Target
from dragoman.streams.dial import BackOff

DIAL_LIMIT = 5.0  # seconds for one attempt to connect, with the handshake
MAX_DIAL_DELAY = 5.0  # seconds between two attempts
TURNED_AWAY = ("draining", "partitioned")  # refusals by a broker that cannot do it, while others may
MAX_SUSPICIOUS_SIZE = max(map(len, SUSPICIOUS))
OpenLink = Callable[..., Any]


class PendingItem(Protocol):
    """A job or an operation as the engine sees it: the future whose outcome it sets."""

    submit_options: SubmitOptions
    payload: Frame
    job_id: bytes
    extras: JobExtras | None
    connection: ClientConnection | None  # None: waits for a connection, or has ended
    is_over: bool
    entered: float
    due: float  # time of its time-out; 0: none

    @property
    def operation(self) -> OperationCall | None:
        """The operation, or None for a job."""

    def __hash__(self) -> int: ...

    def succeed(self, result: Frame) -> None: ...

    def fail(self, error: DragomanError) -> None: ...

    def report(self, payload: Frame, is_part: bool, attempt: int) -> None: ...

    def answer(self, view: bytes, payload: Frame) -> None: ...


class ConnectionOwner(Protocol):
    """The engine, as a connection sees it."""

    candidates: Candidates

    def batch_done(self, connection: ClientConnection) -> None:
        """Called when all messages that arrived together have been handled."""

    def ended(self, job: PendingItem) -> None:
        """Called when a job has ended, before its future is completed."""

    def turned_away(self, job: PendingItem, connection: ClientConnection) -> bool:
        """Called when a broker refuses a job that another one may accept. Returns whether it goes to another one; then
        it does not belong to this connection any more."""

    def is_wanted(self, connection: ClientConnection) -> bool:
        """Return whether any job needs this connection."""

    def unreachable(self, problem: BrokerUnavailable) -> None: ...

    def lost(self, connection: ClientConnection) -> None:
        """Called when the connection is lost."""


class _NoSide:
    """The side of a connection that is not used any more: nothing is sent, and what arrives is dropped. It does not
    inherit ClientSide, which is compiled."""

    patience = inf
    hint = ""
    is_ready = False

    def tick(self, now: float) -> float:
        return inf

    def __getattr__(self, name: str) -> Any:
        """Return a method that does nothing."""
        return lambda *_, **__: None


class ClientConnection:
    """Implements ClientIO for the client side of a dialect."""

    def __init__(
        self, target: Target, owner: ConnectionOwner, connect_timeout: float, open: OpenLink = open_connection
    ) -> None:
        """`connect_timeout`: seconds that a job waits for a connection; dial delays leave time for several attempts."""
        self._target = target
        self._owner = owner
        self._round = Round(owner.candidates)
        self._dial_limit = owner.candidates.dial_limit(DIAL_LIMIT, connect_timeout)
        self._last = self._round.current  # the address of the last connection
        self._open = open
        self._link: OutgoingConnection | None = None
        self._back_off = BackOff(random.uniform, cap=min(MAX_DIAL_DELAY, connect_timeout / 4))
        self._is_shared = target.dialect.calls_at_once
        self._may_dial_at_once = True  # it may dial without a delay
        self._early: list[Callable[[], None]] | None = None  # messages and the end, until a new connection is open
        self._has_received = False  # a message has arrived on this connection
        self._is_suspect = False  # the received answer may come from a wrong port
        self._identifying: asyncio.Task[None] | None = None  # identifies the port
        self._identify_timer: asyncio.TimerHandle | None = None  # starts to identify a silent port
        self.dialling: asyncio.Task[None] | None = None
        self.is_leaving = False  # it gets no more jobs, and ends with those that it has
        self.lost_at = inf
        self.jobs: dict[PendingItem, None] = {}
        self.side: ClientSide = target.sides.client_side(target.options, self)

    @property
    def is_open(self) -> bool:
        """Return whether the socket is connected; the dialect's own handshake may still be pending."""
        return self._link is not None

    @property
    def is_ready(self) -> bool:
        return self._link is not None and self.side.is_ready

    @property
    def has_room(self) -> bool:
        return self._link is not None and (self._is_shared or not self.jobs) and self.side.is_ready

    @property
    def candidate(self) -> Candidate:
        """The address of this connection, or of the last one."""
        return self._last

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The running tasks of this connection."""
        return [task for task in (self.dialling, self._identifying) if task is not None]

    # ---------------------------------------------------------------- jobs

    def take(self, job: PendingItem, now: float) -> None:
        self.jobs[job] = None
        job.connection = self
        operation = job.operation
        if operation is None:
            self.side.submit(job, job.submit_options, job.payload, job.job_id, now, job.extras)
        else:
            number = None if operation.number is None else operation.number.text
            self.side.ask(job, operation.text, operation.form, job.payload, job.job_id, now, job.extras, number)

    def flush(self, now: float) -> None:
        """Send everything queued so far."""
        self.side.flush(now)
        if self._link is not None:
            self._link.flush()

    def drop(self, job: PendingItem, now: float) -> None:
        """Forget a job whose caller no longer waits. In dialects whose responses name no job, reconnect: a late
        response would be taken for that of the next call."""
        del self.jobs[job]
        self.side.forget(job, job.job_id, now)
        if not self._is_shared:
            self.reconnect("the caller of the job does not wait any longer")

    def leave(self) -> None:
        """Take no more jobs: the client goes to another broker. Those that are in progress here end here."""
        self.is_leaving = True
        self._round.stay()

    def take_back(self, now: float, with_operations: bool) -> list[PendingItem]:
        """Remove and return the jobs that another broker may do: those that were not sent; and operations, which are
        carried out once, if that is wanted."""
        found: list[PendingItem] = []
        for job in list(self.jobs):
            if with_operations if job.operation is not None else not self._is_sent(job):
                del self.jobs[job]
                self.side.forget(job, job.job_id, now)
                job.connection = None
                found.append(job)
        return found

    def _is_sent(self, job: PendingItem) -> bool:
        return self.side.is_sent(job.job_id)

    def fail_all(self, error: Callable[[], DragomanError]) -> None:
        """End all jobs of this connection with an error."""
        now = monotonic()
        for job in list(self.jobs):
            if job in self.jobs:
                self.drop(job, now)
                self._owner.ended(job)
                job.fail(error())

    # ---------------------------------------------------------------- the connection

    def dial(self) -> None:
        """Retry to connect until it succeeds or no job needs the connection."""
        if self._link is None and self.dialling is None:
            delay = 0.0 if self._may_dial_at_once else self._back_off.next()
            self.dialling = asyncio.get_running_loop().create_task(self._dial(delay))

    def close(self) -> None:
        if self._identify_timer is not None:
            self._identify_timer.cancel()
        for task in self.tasks:
            task.cancel()
        if self._link is not None:
            self.side.bye()
            self._link.close()
            self._link = None

    def abandon(self) -> None:
        """Break the reference cycle with the side of the dialect: the owner does not use this connection any more."""
        self.side = cast(ClientSide, _NoSide())

    async def _dial(self, delay: float) -> None:
        self._may_dial_at_once = False
        try:
            while True:
                if delay:
                    await asyncio.sleep(delay)
                if not self._owner.is_wanted(self):
                    break
                try:
                    await self._connect()
                    return
                except BrokerUnavailable as problem:
                    failure = self._round.failed(problem)
                if isinstance(failure, NotAllowed):
                    self._refused(failure)
                    break
                delay = 0.0
                if failure is not None:  # all addresses have been tried
                    self._owner.unreachable(failure)
                    delay = self._back_off.next()
        finally:
            if self.dialling is asyncio.current_task():
                self.dialling = None
        self._owner.lost(self)

    def _refused(self, problem: NotAllowed) -> None:
        """Fail all jobs: the broker does not accept this client, or not any longer."""
        self.fail_all(lambda: NotAllowed(str(problem)))
        self.side = self._target.sides.client_side(self._target.options, self)
        self._owner.unreachable(problem)

    async def _connect(self) -> None:
        chosen = self._round.current
        carrier = chosen.target.client_carrier()
        self._has_received = False
        opening = self._open(
            self._round.place, carrier, self._received, self._ended, self._dial_limit, self._batch_done
        )
        early: list[Callable[[], None]] = []
        self._early = early
        try:
            link = await chosen.recognition.open(opening)
        finally:
            self._early = None
        if chosen is not self._last:
            self._last = chosen
            self.side.moved()
        self._link = link
        self.lost_at = inf
        self.dialling = None
        if not self._round.recognition.is_known:
            self._identify_timer = asyncio.get_running_loop().call_later(SILENCE_LIMIT, self._identify_if_silent)
        self.side.opened(monotonic())
        for event in early:
            if self._link is link:
                event()
        self._batch_done()

    def _received(self, message: Message | TooLarge) -> None:
        if self._early is not None:
            self._early.append(partial(self._received, message))
            return
        if self._link is None:  # messages behind the one that made us close the connection
            return
        self._has_received = True
        try:
            self.side.receive(message, monotonic())
        except Malformed as problem:
            if self._round.recognition.is_known or problem.reason == FORBIDDEN:
                self._invalid_message(problem)
            else:
                self._disconnect()
                self.dialling = asyncio.get_running_loop().create_task(self._explain(problem))
        else:
            if not self._is_suspect:
                self._round.recognition.is_known = True

    def _batch_done(self) -> None:
        if self._has_received and not self._may_dial_at_once and self.side.is_ready:
            self._may_dial_at_once = True
            self._back_off.reset()
            self._round.succeeded()
        self._owner.batch_done(self)

    def _identify_if_silent(self) -> None:
        """Identify the port if no message has arrived."""
        if self._link is not None and not self._has_received and self._identifying is None:
            self._identifying = asyncio.get_running_loop().create_task(self._identify_port(self._link))

    async def _identify_port(self, link: OutgoingConnection) -> None:
        problem = await self._round.recognition.problem()
        self._identifying = None
        if problem is not None and link is self._link:
            self._reject_port(problem)

    async def _explain(self, invalid: Malformed) -> None:
        """Identify the port after an invalid first message."""
        try:
            problem = await self._round.recognition.problem(thorough=True)
        finally:
            self.dialling = None
        if problem is not None:
            self._reject_port(problem)
        else:
            self._invalid_message(invalid)

    async def _check_answer(self, job: PendingItem, result: Frame) -> None:
        """Identify the port after a first answer that may be a result, or a worker port's reply to a wrong client."""
        problem = await self._round.recognition.problem(thorough=True)
        self._identifying = None
        self._is_suspect = False
        if problem is not None:
            self._reject_port(problem)
        else:
            self._round.recognition.is_known = True
            self.answered(job, result)

    def _reject_port(self, problem: WrongDialect) -> None:
        failure = self._round.failed(problem)
        if not isinstance(failure, WrongDialect):
            self._go_on(failure, str(problem))
            return
        wrong = failure
        self._disconnect()
        self.fail_all(lambda: WrongDialect(str(wrong), wrong.operation_sentence))
        self.side = self._target.sides.client_side(self._target.options, self)
        self._owner.unreachable(wrong)
        self._owner.lost(self)

    def _invalid_message(self, problem: Malformed) -> None:
        """Close the connection after an invalid message and fail its jobs."""
        if not self.side.is_ready:
            rejected = f"the broker at {self._round.place} rejected the connection: {problem.detail}"
            kind = NotAllowed if problem.reason == FORBIDDEN else BrokerUnavailable
            failure = self._round.failed(kind(rejected))
            if failure is None:
                self._go_on(None, rejected)
                return
            self._owner.unreachable(failure)
        reason = f"failed: invalid response from the broker: {problem.detail}"
        self._disconnect()
        self.fail_all(lambda: JobFailed(reason))
        self.side = self._target.sides.client_side(self._target.options, self)
        self._owner.lost(self)

    def _go_on(self, failure: BrokerUnavailable | None, reason: str) -> None:
        """Dial the next address: at once, or after a delay if all have failed. Calls in progress stay, if they can."""
        self._disconnect()
        self._may_dial_at_once = failure is None
        if failure is not None:
            self._owner.unreachable(failure)
        self._end_connection(reason, is_delayed=failure is not None)

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _ended(self, problem: str) -> None:
        if self._early is not None:
            self._early.append(partial(self._ended, problem))
            return
        reason = f"the connection to the broker at {self._round.place} ended before the response: {problem}"
        if self._link is not None and not self.side.is_ready:
            failure = self._round.failed(BrokerUnavailable(handshake_problem(self._round.place, problem)))
            self._go_on(failure, reason)
            return
        self._link = None
        self._round.restart()
        self._end_connection(reason, is_delayed=True)

    def _end_connection(self, reason: str, is_delayed: bool) -> None:
        """Fail the jobs, or dial if they outlive the connection."""
        self.side.lost()
        self.lost_at = monotonic()
        if not self.side.outlives_connections:
            self.fail_all(lambda: BrokerUnavailable(reason))
            self.side = self._target.sides.client_side(self._target.options, self)
        elif self.jobs:
            self._may_dial_at_once = not is_delayed
            self.dial()
        self._owner.lost(self)

    # ---------------------------------------------------------------- ClientIO

    def send(self, frames: Sequence[Frame]) -> None:
        if self._link is not None:
            self._link.send(frames)

    def answered(self, job_ref: Hashable, result: Frame) -> None:
        job: PendingItem = job_ref  # type: ignore[assignment]
        if len(result) <= MAX_SUSPICIOUS_SIZE and not self._round.recognition.is_known and result in SUSPICIOUS:
            self._is_suspect = True
            self._identifying = asyncio.get_running_loop().create_task(self._check_answer(job, result))
            return
        if self.jobs.pop(job, self) is not self:
            self._owner.ended(job)
            job.succeed(result)

    def ended(
        self,
        job_ref: Hashable,
        outcome: Outcome | None,
        reason: str,
        failure: Failure | None = None,
        refusal: str = "",
    ) -> None:
        if refusal == UNAUTHENTICATED or refusal in NOT_ADMITTED:
            self._not_admitted(job_ref, refusal, reason)
        elif refusal not in TURNED_AWAY or not self._turns_away(job_ref, refusal):
            self._fail(job_ref, error_from(outcome, reason, failure, refusal))

    def abandoned(self, job_ref: Hashable, reason: str) -> None:
        self._fail(job_ref, BrokerUnavailable(reason))

    def reported(self, job_ref: Hashable, payload: Frame, is_part: bool, attempt: int) -> None:
        job: PendingItem = job_ref  # type: ignore[assignment]
        if job in self.jobs:
            job.report(payload, is_part, attempt)

    def told(self, job_ref: Hashable, view: bytes, payload: Frame) -> None:
        job: PendingItem = job_ref  # type: ignore[assignment]
        if self.jobs.pop(job, self) is not self:
            self._owner.ended(job)
            job.answer(view, payload)

    def operation_failed(self, job_ref: Hashable, kind: str, detail: str) -> None:
        if kind == UNAUTHENTICATED or kind in NOT_ADMITTED:
            self._not_admitted(job_ref, kind, detail)
        elif kind not in TURNED_AWAY or not self._turns_away(job_ref, kind):
            self._fail(job_ref, OperationError(kind, detail))

    def _turns_away(self, job_ref: Hashable, kind: str) -> bool:
        """Return whether a job that was refused goes to another broker."""
        job: PendingItem = job_ref  # type: ignore[assignment]
        if self.jobs.pop(job, self) is self:
            return False
        if self._owner.turned_away(job, self):
            return True
        self.jobs[job] = None
        return False

    def _not_admitted(self, job_ref: Hashable, kind: str, detail: str) -> None:
        from dragoman.sdk.refusals import unauthenticated

        target = self._round.current.target
        error = NotAllowed(f"the broker at {target.place} does not admit this client: {detail}")
        self._fail(job_ref, unauthenticated(target.place, target.proof) if kind == UNAUTHENTICATED else error)

    def _fail(self, job_ref: Hashable, error: DragomanError) -> None:
        job: PendingItem = job_ref  # type: ignore[assignment]
        if self.jobs.pop(job, self) is not self:
            self._owner.ended(job)
            job.fail(error)

    def reconnect(self, reason: str) -> None:
        if self._link is not None:
            if not self.side.is_ready:
                failure = self._round.failed(BrokerUnavailable(f"connected to {self._round.place}, but {reason}"))
                self._go_on(failure, reason)
                return
            self._disconnect()
            self._ended(reason)
