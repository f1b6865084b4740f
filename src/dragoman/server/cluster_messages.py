"""Requests and views of operations as records between brokers, and the responders that receive views of brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.cluster.records import Answer, Ask
from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.operations.operation import Operation
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import ErrorView, View
from dragoman.operations.table import OPERATIONS

_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Any]] = {}


class MarkingResponder:
    """Adds the name of the broker that has the object to its view."""

    __slots__ = ("_broker", "_responder")

    def __init__(self, responder: Responder, broker: str) -> None:
        self._responder = responder
        self._broker = broker

    @property
    def owner(self) -> Any:
        return self._responder.owner

    @property
    def dialect(self) -> str:
        return self._responder.dialect

    @property
    def origin(self) -> str:
        return self._responder.origin

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        if "broker" in view.__struct_fields__:
            view.broker = self._broker  # type: ignore[attr-defined]
        self._responder.answer(view, payload, failure)

    def refuse(self, problem: ErrorView) -> None:
        self._responder.refuse(problem)


class PartResponder:
    """Receives the part of this broker in a merged view."""

    __slots__ = ("_done", "_responder")

    def __init__(self, responder: Responder, done: Callable[[View | ErrorView], None]) -> None:
        self._responder = responder
        self._done = done

    @property
    def owner(self) -> Any:
        return self._responder.owner

    @property
    def dialect(self) -> str:
        return self._responder.dialect

    @property
    def origin(self) -> str:
        return self._responder.origin

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        self._done(view)

    def refuse(self, problem: ErrorView) -> None:
        self._done(problem)


def question_of(
    row: Operation[Any, Any], request: Any, payload: Payload, responder: Responder, shard: int | None
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
    )


def view_of(row: Operation[Any, Any], answer: Answer) -> View:
    """Return the view of an answer; or an error, if a broker of another release has sent what this one cannot read."""
    decoder = _decoders.get(row.name)
    if decoder is None:
        decoder = _decoders[row.name] = msgspec.json.Decoder(OPERATIONS[row.name].view)
    try:
        view: View = decoder.decode(answer.view)
    except msgspec.DecodeError as error:
        return ErrorView(kind="internal", detail=f"the answer of a broker of another release cannot be read: {error}")
    return view
