"""Requests and views of operations as records between brokers, and the responders that receive views of brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.cluster.records import UNREADABLE, Answer, Ask
from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.operations.operation import Operation
from dragoman.operations.passing_responders import PassingResponder
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import ErrorView, View

_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Any]] = {}


class MarkingResponder(PassingResponder):
    """Adds the name of the broker that has the object to its view, unless that broker has added its own."""

    __slots__ = ("_broker",)

    def __init__(self, responder: Responder, broker: str) -> None:
        super().__init__(responder)
        self._broker = broker

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        if "broker" in view.__struct_fields__ and not view.broker:  # type: ignore[attr-defined]
            view.broker = self._broker  # type: ignore[attr-defined]
        super().answer(view, payload, failure)


class WaitingResponder(PassingResponder):
    """Calls `moved` in place of an error, if the job that is waited for has moved to another broker."""

    __slots__ = ("_moved",)

    def __init__(self, responder: Responder, moved: Callable[[], None]) -> None:
        super().__init__(responder)
        self._moved = moved

    def refuse(self, problem: ErrorView) -> None:
        if problem.kind == "partitioned":
            self._moved()
        else:
            super().refuse(problem)


def question_of(
    row: Operation[Any, Any],
    request: Any,
    payload: Payload,
    responder: Responder,
    shard: int | None,
    proves: bool = False,
) -> Ask:
    """Return the record of an operation, with the principal of its client."""
    owner = responder.owner
    return Ask(
        0,
        row.name,
        _encoder.encode(request),
        owner.principal.name,
        bytes(payload),
        shard,
        owner.address,
        owner.label,
        responder.dialect,
        responder.origin,
        proves,
    )


def view_of(row: Operation[Any, Any], answer: Answer) -> View:
    """Return the view of an answer; or an error, if a broker of another release has sent what this one cannot read."""
    decoder = _decoders.get(row.name)
    if decoder is None:
        decoder = _decoders[row.name] = msgspec.json.Decoder(row.view)
    try:
        view: View = decoder.decode(answer.view)
    except UNREADABLE as error:
        return ErrorView(kind="internal", detail=f"the answer of a broker of another release cannot be read: {error}")
    return view
