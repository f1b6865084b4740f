"""Executes operations that other brokers of the cluster ask for, with the rights of their client at this broker."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman.cluster.questions import MOVED, Answerer
from dragoman.cluster.records import Answer, Ask
from dragoman.core.failure import Failure, pack_failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.json_api import call_json
from dragoman.operations.responders import PendingRequest
from dragoman.operations.schemas import EnqueueRequest, ErrorView, View
from dragoman.operations.table import ENQUEUE, OPERATIONS
from dragoman.server.cluster_places import Places

_encoder = msgspec.json.Encoder()


class ClusterAnswers(Answerer):
    """Answers for one broker."""

    def __init__(self, handlers: OperationHandlers, places: Places, wake: Callable[[], None]) -> None:
        """`wake` requests an iteration of the runner."""
        self._handlers = handlers
        self._places = places
        self._wake = wake

    def ask(self, broker: str, question: Ask, respond: Callable[[Answer], None], now: float) -> object | None:
        shards, shard = self._places.shards, question.shard
        if shard is not None and not (shard < shards.count and shards.is_ready(shard)):
            respond(Answer(question.number, kind=MOVED, detail=f"shard {shard} is not at this broker"))
            return None
        responder = AskResponder(question, self._owner(broker, question), broker, respond)
        if self._is_copy(question):
            responder.refuse(ErrorView(kind="not found", detail="the job belongs to another broker"))
            return None
        if shard is None and self._lacks_predecessors(question):
            responder.refuse(ErrorView(kind="not found", detail="the jobs in `after` are not at this broker"))
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

    def _lacks_predecessors(self, question: Ask) -> bool:
        """True if a broker searches for the jobs that a new one comes after, and they are not here."""
        if question.operation != ENQUEUE.name or not self._places.shards.count:
            return False
        try:
            request = msgspec.json.decode(question.request, type=EnqueueRequest)
        except msgspec.DecodeError:
            return False
        return bool(request.after) and not self._places.has_predecessors(request)

    def _is_copy(self, question: Ask) -> bool:
        row = OPERATIONS.get(question.operation)
        if row is None or row.answered_by != "job owner":
            return False
        try:
            request = msgspec.json.decode(question.request, type=row.request)
        except msgspec.DecodeError:
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
