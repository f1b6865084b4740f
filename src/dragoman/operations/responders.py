"""Responders, which receive the answer to an operation, and requests that wait for a job."""

from __future__ import annotations

from typing import Final, Protocol

from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.model import Caller, Payload
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.operations.schemas import ErrorView, View


class Responder(Protocol):
    """Receives the answer to one operation. One of `answer` and `refuse` is called, once."""

    @property
    def owner(self) -> Owner | None:
        """The owner whose limits its jobs count for."""

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None: ...

    def refuse(self, problem: ErrorView) -> None: ...


class JsonResponder(Protocol):
    """The source of a call in JSON. It gets one of these, once."""

    @property
    def owner(self) -> Owner | None: ...

    @property
    def edition(self) -> int:
        """The edition of operations and views that it uses (`older_names.py`)."""

    def tell(self, view: bytes, payload: Payload, failure: Failure | None) -> None: ...

    def object(self, kind: str, detail: str) -> None: ...


class PendingRequest(Caller):
    """A request that waits until a job is accepted, or for its outcome."""

    __slots__ = ("alarm", "alarm_number", "due", "responder")

    def __init__(self, recipient: Recipient, responder: Responder, due: float) -> None:
        super().__init__(recipient)
        self.responder: Responder | None = responder  # None: it was answered, or its client has disconnected
        self.due = due  # time at which the wait for an outcome ends; inf: it waits until the job is accepted
        self.alarm = inf
        self.alarm_number = 0


class NullResponder:
    owner = None

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        pass

    def refuse(self, problem: ErrorView) -> None:
        pass


NULL_RESPONDER: Final = NullResponder()
