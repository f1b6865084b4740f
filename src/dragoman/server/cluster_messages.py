"""Requests and views of operations as records between brokers, and the responders that receive views of brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.cluster.records import Answer, Ask
from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.operations.operation import Operation
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import ErrorView, View
from dragoman.operations.table import OPERATIONS

_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Any]] = {}


class PassingResponder:
    """Passes responses on, for the client of another responder."""

    __slots__ = ("_responder",)

    def __init__(self, responder: Responder) -> None:
        self._responder = responder

    @property
    def owner(self) -> Owner:
        return self._responder.owner

    @property
    def dialect(self) -> str:
        return self._responder.dialect

    @property
    def origin(self) -> str:
        return self._responder.origin

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        self._responder.answer(view, payload, failure)

    def refuse(self, problem: ErrorView) -> None:
        self._responder.refuse(problem)


class MarkingResponder(PassingResponder):
    """Adds the name of the broker that has the object to its view."""

    __slots__ = ("_broker",)

    def __init__(self, responder: Responder, broker: str) -> None:
        super().__init__(responder)
        self._broker = broker

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        if "broker" in view.__struct_fields__:
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


class PartResponder(PassingResponder):
    """Receives the part of this broker in a merged view."""

    __slots__ = ("_done",)

    def __init__(self, responder: Responder, done: Callable[[View | ErrorView], None]) -> None:
        super().__init__(responder)
        self._done = done

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
