"""Requests over NATS and their replies: numbered, with time-outs by an argument.

All replies come to one subscription, `INBOX.*`, where the last token is the number of the request. NATS may lose any
reply without a word, so every request ends by itself: with a reply, with a status of the server, or with its time-out.
A request may have several replies: its function then returns True for each but the last, and the time-out begins anew.

The server answers *no responders* (503) to the connection that published, if nobody listens to the subject.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.carriers.nats_headers import NO_HEADERS, NO_RESPONDERS, Headers, read_headers
from dragoman.core.deadlines import Deadlines
from dragoman.core.infinity import inf

MAX_REQUESTS: Final = 100_000  # in flight


class AnswerKind(Enum):
    """The way in which a request ended, or one of its replies."""

    REPLY = auto()
    NO_RESPONDERS = auto()  # nobody listens to the subject: certainly not processed
    NOT_SENT = auto()  # away, too many requests, or over max_payload of the server: certainly not processed
    TIMED_OUT = auto()  # unknown: processed or not
    DISCONNECTED = auto()  # unknown, too
    TOO_LARGE = auto()  # a reply came that is over our own limits

    @property
    def is_unknown(self) -> bool:
        """True if the request may have been processed or not."""
        return self in (AnswerKind.TIMED_OUT, AnswerKind.DISCONNECTED, AnswerKind.TOO_LARGE)


@final
class Answer:
    """One reply, or the reason why there is none."""

    __slots__ = ("headers", "kind", "payload")

    def __init__(self, kind: AnswerKind, headers: Headers = NO_HEADERS, payload: Frame = b"") -> None:
        self.kind = kind
        self.headers = headers
        self.payload = payload

    def __repr__(self) -> str:
        return f"Answer({self.kind.name}, status {self.headers.status}, {len(self.payload)} bytes)"


Done = Callable[[Answer, float], bool]  # True: another reply is expected


@final
class Request:
    """A request in flight."""

    __slots__ = ("alarm", "alarm_number", "done", "due", "number", "timeout")

    def __init__(self, number: bytes, done: Done, timeout: float, due: float) -> None:
        self.number = number
        self.done = done
        self.timeout = timeout
        self.due = due
        self.alarm = inf
        self.alarm_number = 0


class Requests:
    """The requests in flight of one connection after the other. Numbers are never used twice."""

    def __init__(self, inbox: bytes, most: int = MAX_REQUESTS) -> None:
        """`inbox`: subject of this program alone; another program with the same would take its replies."""
        self._prefix = inbox + b"."
        self._most = most
        self._last = 0
        self._pending: dict[bytes, Request] = {}
        self._deadlines: Deadlines[Request] = Deadlines()
        self.strays = 0  # replies to requests that had ended
        self.bad_replies = 0  # replies whose headers cannot be read; such a request ends with its time-out

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def filter(self) -> bytes:
        """The subject to subscribe to."""
        return self._prefix + b"*"

    def begin(self, done: Done, timeout: float, now: float) -> bytes | None:
        """Begin a request. Returns the subject for its replies; None if too many are in flight."""
        if len(self._pending) >= self._most:
            return None
        self._last += 1
        number = b"%d" % self._last
        request = self._pending[number] = Request(number, done, timeout, now + timeout)
        self._deadlines.arm(request, request.due)
        return self._prefix + number

    def receive(self, subject: Frame, headers: Frame, payload: Frame, now: float) -> None:
        """Pass a reply to its request."""
        request = self._pending.get(bytes(subject[len(self._prefix) :]))
        if request is None:
            self.strays += 1
            return
        try:
            read = read_headers(headers)
        except Malformed:
            self.bad_replies += 1
            return
        kind = AnswerKind.NO_RESPONDERS if read.status == NO_RESPONDERS and not payload else AnswerKind.REPLY
        self._answer(request, Answer(kind, read, payload), now)

    def refuse(self, subject: Frame, now: float) -> None:
        """End a request whose reply was over our own limits."""
        request = self._pending.get(bytes(subject[len(self._prefix) :]))
        if request is not None:
            self._end(request, AnswerKind.TOO_LARGE, now)

    def cancel(self, subject: bytes) -> None:
        """Forget a request without a call. Its replies are strays from now on."""
        request = self._pending.pop(subject[len(self._prefix) :], None)
        if request is not None:
            self._deadlines.disarm(request)

    def end_all(self, kind: AnswerKind, now: float) -> None:
        """End all requests, in their order: the connection has ended."""
        for request in list(self._pending.values()):
            if request.number in self._pending:  # not ended by the function of another
                self._end(request, kind, now)

    def tick(self, now: float) -> float:
        """End requests whose time is over. Returns the time of the next call."""
        for request in self._deadlines.due(now):
            if request.due > now:
                self._deadlines.arm(request, request.due)
            else:
                self._end(request, AnswerKind.TIMED_OUT, now)
        return self._deadlines.next()

    def _answer(self, request: Request, answer: Answer, now: float) -> None:
        if request.done(answer, now):
            request.due = now + request.timeout  # its timer finds out
        else:
            self.cancel(self._prefix + request.number)

    def _end(self, request: Request, kind: AnswerKind, now: float) -> None:
        del self._pending[request.number]
        self._deadlines.disarm(request)
        request.done(Answer(kind), now)
