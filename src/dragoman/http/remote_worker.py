"""Records of HTTP callers and workers."""

from __future__ import annotations

from asyncio import Future
from collections import deque
from math import inf

from dragoman.core.effects import DeliverOutcome
from dragoman.core.model import Attempt, Caller, Payload, Token, Worker
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient, RemoteWorker


class PendingCall(Caller):
    """A request that waits for a job's outcome."""

    __slots__ = ("alarm", "alarm_number", "answer", "number")

    def __init__(self, recipient: Recipient, owner: Owner, answer: Future[DeliverOutcome | None]) -> None:
        super().__init__(recipient, owner)
        self.answer: Future[DeliverOutcome | None] | None = answer  # None: resolved
        self.number = 0  # its number in a recording
        self.alarm = inf
        self.alarm_number = 0

    def resolve(self, outcome: DeliverOutcome | None) -> None:
        """End the wait; None: the client has disconnected. The outcome names its caller, which forgets the future:
        otherwise they would keep each other, and the result, until a garbage collection."""
        answer, self.answer = self.answer, None
        if answer is not None and not answer.done():
            answer.set_result(outcome)


class PendingPoll:
    """A worker's `next`. Its response is a job, nothing after a while, or the reason why the worker was removed."""

    __slots__ = ("alarm", "alarm_number", "answer", "attempt", "due", "is_read", "number", "payload", "remote")

    def __init__(self, remote: RemoteHttpWorker, answer: Future[Attempt | str | None], due: float) -> None:
        self.remote = remote
        self.answer = answer
        self.due = due
        self.attempt: Attempt | None = None  # the job of the response
        self.payload: Payload = b""  # kept, because an ended job drops its own
        self.is_read = False  # bytes of the response may have been sent
        self.number = 0  # its number in a recording
        self.alarm = inf
        self.alarm_number = 0


class UnsentJob:
    """A dispatched job that has not been sent, because its worker has no request waiting."""

    __slots__ = ("alarm", "alarm_number", "attempt", "remote")

    def __init__(self, remote: RemoteHttpWorker, attempt: Attempt) -> None:
        self.remote = remote
        self.attempt = attempt
        self.alarm = inf
        self.alarm_number = 0


class RemoteHttpWorker(RemoteWorker):
    """A worker."""

    __slots__ = ("again", "holder", "latest", "polls", "secret", "unsent", "worker")

    def __init__(self, secret: str) -> None:
        self.secret = secret  # proves its identity
        self.holder = ""  # of its place (`core/shares.py`)
        self.worker: Worker = None  # type: ignore[assignment]  # set after joining
        self.polls: deque[PendingPoll] = deque()  # without a response; oldest first
        self.unsent: dict[Token, UnsentJob] = {}
        self.again: dict[Token, Attempt] = {}  # responses were interrupted: the worker may have them (R124)
        self.latest: Attempt | None = None  # the last one sent, until the worker refers to it

    def attempt(self, token: Token) -> Attempt | None:
        """Return the attempt with this token that has no result yet, current or not. The worker evidently has it."""
        if self.latest is not None and self.latest.token == token:
            self.latest = None
        self.again.pop(token, None)
        return self.worker.find(token)
