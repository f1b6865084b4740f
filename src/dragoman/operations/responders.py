"""Responders, which receive the response of an operation; and requests that wait for a job."""

from __future__ import annotations

from typing import Final, Protocol

from dragoman.core.failure import Failure
from dragoman.core.groups import Group
from dragoman.core.infinity import inf
from dragoman.core.model import Caller, Payload
from dragoman.core.owners import Owner
from dragoman.core.recipients import Recipient
from dragoman.core.rights import Principal
from dragoman.operations.schemas import ErrorView, View


class Responder(Protocol):
    """Receives the response of an operation: one call of `answer` or `refuse`."""

    @property
    def owner(self) -> Owner:
        """Owner of the jobs of this client: its principal has the rights."""

    @property
    def dialect(self) -> str:
        """Dialect of the request, for the count of refused rights."""

    @property
    def origin(self) -> str:
        """Address or process from which the request came, for the log line of an administrator's act (R151)."""

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None: ...

    def refuse(self, problem: ErrorView) -> None: ...


class JsonResponder(Protocol):
    """Receives the response of an operation in JSON: one call of `tell` or `object`."""

    @property
    def owner(self) -> Owner: ...

    @property
    def dialect(self) -> str: ...

    @property
    def origin(self) -> str: ...

    @property
    def edition(self) -> int:
        """Edition of operations and views that the client uses (`older_names.py`)."""

    def tell(self, view: bytes, payload: Payload, failure: Failure | None) -> None: ...

    def object(self, kind: str, detail: str) -> None: ...


class PendingRequest(Caller):
    """A request that waits until a job is accepted or has ended, or until a group is complete."""

    __slots__ = ("alarm", "alarm_number", "due", "group", "remembered_in", "responder")

    def __init__(self, recipient: Recipient, responder: Responder, due: float) -> None:
        super().__init__(recipient, responder.owner)
        self.dialect = responder.dialect
        self.responder: Responder | None = responder  # None: answered, or the client disconnected
        self.due = due  # time until which it waits for an outcome; inf: waits for acceptance
        self.group: Group | None = None  # it waits until this group is complete
        self.remembered_in = -1  # shard that must store first that it has joined an earlier job; -1: none
        self.alarm = inf
        self.alarm_number = 0


class ForwardedRequest(PendingRequest):
    """A request that other brokers of the cluster execute. `work`: the record of that."""

    __slots__ = ("work",)

    def __init__(self, recipient: Recipient, responder: Responder, work: object) -> None:
        super().__init__(recipient, responder, inf)
        self.work = work


class OwnResponder:
    """Stands for this broker, which asks itself or other brokers. It ignores responses."""

    dialect = "operations"
    origin = "this broker"

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        pass

    def refuse(self, problem: ErrorView) -> None:
        pass


class NullResponder:
    """Ignores the response."""

    owner = Owner(Principal("nobody"))
    dialect = "operations"
    origin = "this broker"

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        pass

    def refuse(self, problem: ErrorView) -> None:
        pass


NULL_RESPONDER: Final = NullResponder()
