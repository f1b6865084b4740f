"""Operations in JSON: decodes requests, encodes views, and reports a request that cannot be decoded as an error."""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.operations import older_names
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.responders import JsonResponder, PendingRequest, Responder
from dragoman.operations.schemas import ErrorView, View
from dragoman.operations.table import OPERATIONS
from dragoman.operations.validation import explain

_readers: dict[str, msgspec.json.Decoder[Any]] = {}
_writer = msgspec.json.Encoder()


class JsonOperations:
    """The operations for a dialect that carries requests and views as JSON."""

    def __init__(self, desk: OperationHandlers) -> None:
        self._desk = desk

    def ask(
        self, question: str, form: bytes, payload: Payload, responder: JsonResponder, now: float
    ) -> PendingRequest | None:
        if responder.edition < older_names.EDITION:
            responder = older_names.OlderResponder(responder, question)
            question = older_names.OPERATIONS.get(question, question)
        return call_json(self._desk, question, form, payload, _Written(responder), now)

    def leave(self, pending: Any, now: float) -> None:
        self._desk.leave(pending, now)


def call_json(
    desk: OperationHandlers, question: str, form: bytes, payload: Payload, responder: Responder, now: float
) -> PendingRequest | None:
    """Perform an operation from the bytes of its request. An invalid request is answered with an error."""
    reader = _readers.get(question)
    if reader is None:
        if question not in OPERATIONS:
            known = ", ".join(OPERATIONS)
            responder.refuse(
                ErrorView(kind="invalid", detail=f"nothing is called {question[:64]!r}; known are {known}")
            )
            return None
        reader = _readers[question] = msgspec.json.Decoder(OPERATIONS[question].request)
    try:
        read = reader.decode(form or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        responder.refuse(
            ErrorView(kind="invalid", detail=f"{question}: {explain(error, OPERATIONS[question].request)}")
        )
        return None
    return desk.ask(question, read, payload, responder, now)


class _Written:
    """Encodes views as JSON for a responder."""

    __slots__ = ("_responder",)

    def __init__(self, responder: JsonResponder) -> None:
        self._responder = responder

    @property
    def owner(self) -> Owner | None:
        return self._responder.owner

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        self._responder.tell(_writer.encode(view), payload, failure)

    def refuse(self, problem: ErrorView) -> None:
        self._responder.object(problem.kind, problem.detail)
