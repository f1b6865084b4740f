"""Executes operations that other brokers of the cluster ask for, with the rights of their client at this broker."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman.cluster.questions import MOVED, Answerer
from dragoman.cluster.records import UNREADABLE, Answer, Ask
from dragoman.core.failure import Failure, pack_failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.internal_table import row_of
from dragoman.operations.json_api import call_json
from dragoman.operations.responders import PendingRequest
from dragoman.operations.schemas import ErrorView, View
from dragoman.server.cluster_places import Places

_encoder = msgspec.json.Encoder()

Respond = Callable[[Answer], None]
Other = Callable[[Ask, Owner, Respond], None]  # executes a question that is no operation


class ClusterAnswers(Answerer):
    """Answers for one broker."""

    def __init__(self, handlers: OperationHandlers, places: Places, wake: Callable[[], None]) -> None:
        """`wake` requests an iteration of the runner."""
        self._handlers = handlers
        self._places = places
        self._wake = wake
        self.others: dict[str, Other] = {}  # questions that are no operations, by their name

    def ask(self, broker: str, question: Ask, respond: Callable[[Answer], None], now: float) -> object | None:
        shards, shard = self._places.shards, question.shard
        if shard is not None and not (shard < shards.count and shards.is_ready(shard)):
            respond(Answer(question.number, kind=MOVED, detail=f"shard {shard} is not at this broker"))
            return None
        if question.operation in self.others:
            self.others[question.operation](question, self._owner(broker, question), respond)
            return None
        responder = AskResponder(question, self._owner(broker, question), broker, respond)
        if self._is_copy(question):
            responder.refuse(ErrorView(kind="not found", detail="the job belongs to another broker"))
            return None
        self._wake()
        return call_json(
            self._handlers, question.operation, question.request, question.payload, responder, now, is_here=True
        )

    def leave(self, pending: object, now: float) -> None:
        assert isinstance(pending, PendingRequest)
        self._handlers.leave(pending, now)

    def _owner(self, broker: str, question: Ask) -> Owner:
        """Return the client. Clients at one address share their limits, whatever broker they are connected to."""
        core = self._handlers.broker
        principal = core.principals.named(question.principal)
        return core.owners.at(question.address or f"broker {broker}", principal, question.label)

    def _is_copy(self, question: Ask) -> bool:
        row = row_of(question.operation)
        if row is None or row.answered_by not in ("job owner", "predecessor owner"):
            return False
        try:
            request = msgspec.json.decode(question.request, type=row.request)
        except UNREADABLE:
            return False
        return self._places.is_copy(row, request)


class AskResponder:
    """Sends the response of one operation to the broker that asked."""

    __slots__ = ("_number", "_respond", "dialect", "origin", "owner")

    def __init__(self, question: Ask, owner: Owner, broker: str, respond: Callable[[Answer], None]) -> None:
        self._number = question.number
        self._respond = respond
        self.owner = owner
        self.dialect = question.dialect
        self.origin = f"{question.origin}, at broker {broker}" if question.origin else f"broker {broker}"

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        packed = pack_failure(failure) if failure is not None else b""
        self._respond(Answer(self._number, _encoder.encode(view), bytes(payload), packed))

    def refuse(self, problem: ErrorView) -> None:
        self._respond(Answer(self._number, kind=problem.kind, detail=problem.detail))
