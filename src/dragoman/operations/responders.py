"""Calls of operations: the asker, who is answered once, and the ticket of one who waits."""

from __future__ import annotations

from typing import Final, Protocol

from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.model import Caller, Payload
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.operations.schemas import Problem, View


class Asker(Protocol):
    """The source of a call. It gets one of these, once."""

    @property
    def owner(self) -> Owner | None:
        """The owner whose limits its jobs count for."""

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None: ...

    def refuse(self, problem: Problem) -> None: ...


class Ticket(Caller):
    """A call that waits for a job to be accepted, or for its outcome."""

    __slots__ = ("alarm", "alarm_number", "asker", "due")

    def __init__(self, recipient: Recipient, asker: Asker, due: float) -> None:
        super().__init__(recipient)
        self.asker: Asker | None = asker  # None: it has been answered, or has gone
        self.due = due  # until when it waits for an outcome; inf: it waits for the job to be accepted
        self.alarm = inf
        self.alarm_number = 0


class Nobody:
    owner = None

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        pass

    def refuse(self, problem: Problem) -> None:
        pass


NOBODY: Final = Nobody()
