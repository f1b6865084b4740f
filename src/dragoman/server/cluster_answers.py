"""Executes operations that other brokers of the cluster ask for, with the rights of their client at this broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.cluster.questions import MOVED, Answerer
from dragoman.cluster.records import UNREADABLE, Answer, Ask
from dragoman.cluster.shard_keeper import CONFIRM_WITHIN
from dragoman.core.failure import Failure, pack_failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.internal_table import row_of
from dragoman.operations.json_api import call_json
from dragoman.operations.operation import Operation
from dragoman.operations.responders import PendingRequest
from dragoman.operations.schemas import ErrorView, View
from dragoman.server.cluster_gathering import PROVED_WITHIN
from dragoman.server.cluster_places import Places

_encoder = msgspec.json.Encoder()

Respond = Callable[[Answer], None]
Deny = Callable[[Ask, Answer, Respond], None]
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
        row = row_of(question.operation)
        if row is not None and question.proves:
            respond = self._with_proof(row, respond)
        responder = AskResponder(question, self._owner(broker, question), broker, respond, self._deny)
        if self._is_copy(question):
            responder.refuse(ErrorView(kind="not found", detail="the job belongs to another broker"))
            return None
        self._wake()
        return call_json(
            self._handlers, question.operation, question.request, question.payload, responder, now, is_here=True
        )

    def _deny(self, question: Ask, denial: Answer, respond: Respond) -> None:
        """Say that there is no such thing, with the shards that are proved to be here."""
        row = row_of(question.operation)
        assert row is not None
        try:
            request = msgspec.json.decode(question.request, type=row.request)
        except UNREADABLE:
            respond(denial)
            return

        def confirmed(shards: Sequence[int], problems: dict[int, str]) -> None:
            respond(replace(denial, confirmed=bytes(shards), has_imports=self._places.shards.has_imports))

        self._places.shards.confirm(self._places.denied_by(row, request, question.shard), confirmed, CONFIRM_WITHIN)

    def _with_proof(self, row: Operation[Any, Any], respond: Respond) -> Respond:
        """Return a function that sends a part of a list with the shards that are proved to be here."""
        known: list[bytes] = []
        held: list[Answer] = []

        def send() -> None:
            if known and held:
                respond(replace(held.pop(), confirmed=known[0]))

        def confirmed(shards: Sequence[int], problems: dict[int, str]) -> None:
            known.append(bytes(shards))
            send()

        def answer(found: Answer) -> None:
            held.append(found)
            send()

        self._places.shards.confirm(self._places.denied_by(row, None, None), confirmed, PROVED_WITHIN)
        return answer

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

    __slots__ = ("_deny", "_number", "_question", "_respond", "dialect", "origin", "owner")

    def __init__(self, question: Ask, owner: Owner, broker: str, respond: Respond, deny: Deny) -> None:
        self._number = question.number
        self._question = question
        self._respond = respond
        self._deny = deny
        self.owner = owner
        self.dialect = question.dialect
        self.origin = f"{question.origin}, at broker {broker}" if question.origin else f"broker {broker}"

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        packed = pack_failure(failure) if failure is not None else b""
        self._respond(Answer(self._number, _encoder.encode(view), bytes(payload), packed))

    def refuse(self, problem: ErrorView) -> None:
        answer = Answer(self._number, kind=problem.kind, detail=problem.detail)
        if problem.kind == "not found":
            self._deny(self._question, answer, self._respond)
        else:
            self._respond(answer)
