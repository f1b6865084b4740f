"""Callers and workers that speak HTTP, as their session knows them."""

from __future__ import annotations

from asyncio import Future
from collections import deque
from math import inf

from dragoman.core.effects import DeliverOutcome
from dragoman.core.model import Attempt, Caller, Payload, Token, Worker
from dragoman.core.recipients import Recipient, RemoteWorker


class PendingCall(Caller):
    """Somebody who waits for a job's outcome: one request. Its answer is None if it does not wait any more."""

    __slots__ = ("alarm", "alarm_number", "answer")

    def __init__(self, recipient: Recipient, answer: Future[DeliverOutcome | None]) -> None:
        super().__init__(recipient)
        self.answer = answer
        self.alarm = inf
        self.alarm_number = 0


class PendingPoll:
    """A worker's `next`: it is answered with a job, with nothing after a while, or with why its worker is gone."""

    __slots__ = ("alarm", "alarm_number", "answer", "attempt", "due", "is_read", "payload", "remote")

    def __init__(self, remote: HttpWorker, answer: Future[Attempt | str | None], due: float) -> None:
        self.remote = remote
        self.answer = answer
        self.due = due
        self.attempt: Attempt | None = None  # what it was answered with
        self.payload: Payload = b""  # of that: a job that ends forgets its own
        self.is_read = False  # bytes of the answer may have left us
        self.alarm = inf
        self.alarm_number = 0


class UnsentJob:
    """A job that was given to a worker and has not left us, for its worker does not ask at the moment."""

    __slots__ = ("alarm", "alarm_number", "attempt", "remote")

    def __init__(self, remote: HttpWorker, attempt: Attempt) -> None:
        self.remote = remote
        self.attempt = attempt
        self.alarm = inf
        self.alarm_number = 0


class HttpWorker(RemoteWorker):
    """A worker."""

    __slots__ = ("again", "latest", "offers", "polls", "secret", "worker")

    def __init__(self, secret: str) -> None:
        self.secret = secret  # by which it proves who it is
        self.worker: Worker = None  # type: ignore[assignment]  # set when it has joined
        self.polls: deque[PendingPoll] = deque()  # not answered yet; the first comes first
        self.offers: dict[Token, UnsentJob] = {}
        self.again: dict[Token, Attempt] = {}  # their answers broke off: it may have seen them, or not (R124)
        self.latest: Attempt | None = None  # the last one that left us, if it has not spoken of it since

    def attempt(self, token: Token) -> Attempt | None:
        """What it was given under this token and has not answered, current or not. It knows of it, so it has it."""
        if self.latest is not None and self.latest.token == token:
            self.latest = None
        self.again.pop(token, None)
        return self.worker.find(token)
