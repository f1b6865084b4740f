"""A client's conversation with its broker: one side of a dialect, on one connection after another."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable, Sequence
from time import monotonic
from typing import Any, Protocol

from dragoman.carriers.carrier import Frame, Message, TooLarge
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.sides import ClientSide, Failure, Outcome, SubmitOptions
from dragoman.sdk.errors import BrokerUnavailable, DragomanError, JobFailed, OperationError, WrongDialect, error_from
from dragoman.sdk.operation import OperationCall
from dragoman.sdk.outgoing import OutgoingConnection, open_connection
from dragoman.sdk.recognition import FIRST_SIGN, SUSPICIOUS, Recognition
from dragoman.sdk.targets import Target
from dragoman.streams.dial import BackOff

DIAL_LIMIT = 5.0  # seconds for one attempt to connect and be greeted
LONGEST_REST = 5.0  # seconds between two attempts
LONGEST_SUSPICIOUS = max(map(len, SUSPICIOUS))
OpenLink = Callable[..., Any]


class PendingItem(Protocol):
    """What the engine knows of a future; whoever made it is told how it ended."""

    submit_options: SubmitOptions
    payload: Frame
    job_id: bytes
    connection: ClientConnection | None  # none: it waits for one, or is over
    is_over: bool
    entered: float
    due: float  # 0: nothing guards it

    @property
    def question(self) -> OperationCall | None:
        """What it asks of the broker itself, if it is no job."""

    def __hash__(self) -> int: ...

    def succeed(self, result: Frame) -> None: ...

    def fail(self, error: DragomanError) -> None: ...

    def report(self, payload: Frame, is_part: bool, attempt: int) -> None: ...

    def tell(self, view: bytes, payload: Frame) -> None: ...


class ConnectionOwner(Protocol):
    """Who has conversations, and is told what becomes of them."""

    recognition: Recognition

    def paused(self, connection: ClientConnection) -> None:
        """It has said or heard something, and is done with it."""

    def ended(self, job: PendingItem) -> None:
        """A job is over; its future is told next."""

    def is_wanted(self, connection: ClientConnection) -> bool:
        """Whether a connection is worth trying for."""

    def unreachable(self, problem: BrokerUnavailable) -> None: ...

    def lost(self, connection: ClientConnection) -> None:
        """It has no connection any more."""


class ClientConnection:
    """Implements the client's port of its dialect."""

    def __init__(
        self, target: Target, owner: ConnectionOwner, patience: float, open: OpenLink = open_connection
    ) -> None:
        """`patience`: how long a job waits for a connection, so that several attempts must have room in it."""
        self._target = target
        self._owner = owner
        self._recognition = owner.recognition
        self._open = open
        self._link: OutgoingConnection | None = None
        self._back_off = BackOff(random.uniform, cap=min(LONGEST_REST, patience / 4))
        self._is_shared = target.dialect.calls_at_once
        self._is_rested = True  # it may dial without waiting first
        self._is_heard = False  # the broker has spoken to us on this connection
        self._is_suspect = False  # the answer that came may be none
        self._naming: asyncio.Task[None] | None = None  # finds out what this port is
        self._looking: asyncio.TimerHandle | None = None  # to find out whether this is the right port
        self.dialling: asyncio.Task[None] | None = None
        self.jobs: dict[PendingItem, None] = {}
        self.side: ClientSide = target.sides.client_side(target.options, self)

    @property
    def is_open(self) -> bool:
        """There is a connection; whether we are welcome may not be known yet."""
        return self._link is not None

    @property
    def is_ready(self) -> bool:
        return self._link is not None and self.side.is_ready

    @property
    def has_room(self) -> bool:
        return self._link is not None and (self._is_shared or not self.jobs) and self.side.is_ready

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is under way on the event loop."""
        return [task for task in (self.dialling, self._naming) if task is not None]

    # ---------------------------------------------------------------- jobs

    def take(self, job: PendingItem, now: float) -> None:
        self.jobs[job] = None
        job.connection = self
        question = job.question
        if question is None:
            self.side.submit(job, job.submit_options, job.payload, job.job_id, now)
        else:
            self.side.ask(job, question.text, question.form, job.payload, job.job_id, now)

    def flush(self, now: float) -> None:
        """What was taken or said so far leaves now."""
        self.side.flush(now)
        if self._link is not None:
            self._link.flush()

    def drop(self, job: PendingItem, now: float) -> None:
        """Nobody waits for it any more. Where nothing names an answer, this one would be taken for the next call's."""
        del self.jobs[job]
        self.side.forget(job, job.job_id, now)
        if not self._is_shared:
            self.reconnect("its caller does not wait any longer")

    def fail_all(self, error: Callable[[], DragomanError]) -> None:
        """None of its jobs will be answered."""
        now = monotonic()
        for job in list(self.jobs):
            if job in self.jobs:
                self.drop(job, now)
                self._owner.ended(job)
                job.fail(error())

    # ---------------------------------------------------------------- the connection

    def dial(self) -> None:
        """Try to connect until it works, or nobody wants it any more."""
        if self._link is None and self.dialling is None:
            rest = 0.0 if self._is_rested else self._back_off.next()
            self.dialling = asyncio.get_running_loop().create_task(self._dial(rest))

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        for task in self.tasks:
            task.cancel()
        if self._link is not None:
            self.side.bye()
            self._link.close()
            self._link = None

    async def _dial(self, rest: float) -> None:
        self._is_rested = False
        try:
            while True:
                if rest:
                    await asyncio.sleep(rest)
                if not self._owner.is_wanted(self):
                    break
                try:
                    await self._connect()
                    return
                except BrokerUnavailable as problem:
                    self._owner.unreachable(problem)
                rest = self._back_off.next()
        finally:
            self.dialling = None
        self._owner.lost(self)

    async def _connect(self) -> None:
        place = self._target.place
        carrier = self._target.sides.client_carrier(place)
        self._is_heard = False
        opening = self._open(place, carrier, self._heard, self._ended, DIAL_LIMIT, self._paused)
        self._link = await self._recognition.open(opening)
        self.dialling = None
        if not self._recognition.is_known:
            self._looking = asyncio.get_running_loop().call_later(FIRST_SIGN, self._look_at_port)
        self.side.opened(monotonic())
        self._paused()

    def _heard(self, message: Message | TooLarge) -> None:
        if self._link is None:  # what came behind the message at which we hung up
            return
        self._is_heard = True
        try:
            self.side.receive(message, monotonic())
        except Malformed as problem:
            if self._recognition.is_known:
                self._misunderstood(problem)
            else:
                self._hang_up()
                self.dialling = asyncio.get_running_loop().create_task(self._explain(problem))
        else:
            if not self._is_suspect:
                self._recognition.is_known = True

    def _paused(self) -> None:
        if self._is_heard and not self._is_rested and self.side.is_ready:
            self._is_rested = True
            self._back_off.reset()
        self._owner.paused(self)

    def _look_at_port(self) -> None:
        """If nothing has come by now, find out what this port is."""
        if self._link is not None and not self._is_heard and self._naming is None:
            self._naming = asyncio.get_running_loop().create_task(self._name_port(self._link))

    async def _name_port(self, link: OutgoingConnection) -> None:
        problem = await self._recognition.problem()
        self._naming = None
        if problem is not None and link is self._link:
            self._refuse_port(problem)

    async def _explain(self, misunderstood: Malformed) -> None:
        """The first that came was not understood: what is this port?"""
        try:
            problem = await self._recognition.problem(thorough=True)
        finally:
            self.dialling = None
        if problem is not None:
            self._refuse_port(problem)
        else:
            self._misunderstood(misunderstood)

    async def _look_at_answer(self, job: PendingItem, result: Frame) -> None:
        """The first answer is a word by which ports for workers refuse callers. It may be a result, too."""
        problem = await self._recognition.problem(thorough=True)
        self._naming = None
        self._is_suspect = False
        if problem is not None:
            self._refuse_port(problem)
        else:
            self._recognition.is_known = True
            self.answered(job, result)

    def _refuse_port(self, problem: BrokerUnavailable) -> None:
        self._hang_up()
        self.fail_all(lambda: WrongDialect(str(problem)))
        self.side = self._target.sides.client_side(self._target.options, self)
        self._owner.unreachable(problem)
        self._owner.lost(self)

    def _misunderstood(self, problem: Malformed) -> None:
        """There is nothing to be expected from whoever speaks like this."""
        if not self.side.is_ready:
            told = f"the broker at {self._target.place} does not welcome us: {problem.detail}"
            self._owner.unreachable(BrokerUnavailable(told))
        told = f"failed: the broker's answer was not understood: {problem.detail}"
        self._hang_up()
        self.fail_all(lambda: JobFailed(told))
        self.side = self._target.sides.client_side(self._target.options, self)
        self._owner.lost(self)

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _ended(self, problem: str) -> None:
        if self._link is not None and not self.side.is_ready:
            self._owner.unreachable(BrokerUnavailable(problem))
        self._link = None
        self.side.lost()
        if not self.side.outlives_connections:
            told = f"the broker at {self._target.place} went away before it answered: {problem}"
            self.fail_all(lambda: BrokerUnavailable(told))
            self.side = self._target.sides.client_side(self._target.options, self)
        elif self.jobs:
            self._is_rested = False
            self.dial()
        self._owner.lost(self)

    # ---------------------------------------------------------------- the port

    def send(self, frames: Sequence[Frame]) -> None:
        if self._link is not None:
            self._link.send(frames)

    def answered(self, job_ref: Hashable, result: Frame) -> None:
        job: PendingItem = job_ref  # type: ignore[assignment]
        if len(result) <= LONGEST_SUSPICIOUS and not self._recognition.is_known and result in SUSPICIOUS:
            self._is_suspect = True
            self._naming = asyncio.get_running_loop().create_task(self._look_at_answer(job, result))
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
            job.tell(view, payload)

    def operation_failed(self, job_ref: Hashable, kind: str, detail: str) -> None:
        self._fail(job_ref, OperationError(kind, detail))

    def _fail(self, job_ref: Hashable, error: DragomanError) -> None:
        job: PendingItem = job_ref  # type: ignore[assignment]
        if self.jobs.pop(job, self) is not self:
            self._owner.ended(job)
            job.fail(error)

    def reconnect(self, reason: str) -> None:
        if self._link is not None:
            if not self.side.is_ready:
                self._owner.unreachable(BrokerUnavailable(f"{self._target.place} was reached, but {reason}"))
            self._hang_up()
            self._ended(reason)
