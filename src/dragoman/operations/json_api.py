"""Operations in JSON: decodes requests, encodes views, and reports a request that cannot be decoded as an error."""

from __future__ import annotations

from typing import Any

import msgspec

from dragoman.core.failure import Failure
from dragoman.core.model import Payload
from dragoman.core.owners import Owner
from dragoman.operations import older_names
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.internal_table import INTERNAL, row_of
from dragoman.operations.responders import JsonResponder, PendingRequest, Responder
from dragoman.operations.schemas import ErrorView, View
from dragoman.operations.table import OPERATIONS
from dragoman.operations.validation import decode, explain

_decoders: dict[str, msgspec.json.Decoder[Any]] = {}
_internal_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(row.request) for name, row in INTERNAL.items()
}
_encoder = msgspec.json.Encoder()


class JsonOperations:
    """The operations for a dialect that carries requests and views as JSON."""

    def __init__(self, handlers: OperationHandlers) -> None:
        self._handlers = handlers

    def ask(
        self, operation: str, request: bytes, payload: Payload, responder: JsonResponder, now: float
    ) -> PendingRequest | None:
        if responder.edition < older_names.EDITION:
            is_renamed = responder.edition < older_names.RENAMED
            if operation != "enqueue":  # it is frequent, and its view is the same in all editions
                responder = older_names.OlderResponder(responder, operation)
            operation = older_names.OPERATIONS.get(operation, operation) if is_renamed else operation
        return call_json(self._handlers, operation, request, payload, _JsonEncodingResponder(responder), now)

    def leave(self, pending: Any, now: float) -> None:
        self._handlers.leave(pending, now)


def call_json(
    handlers: OperationHandlers,
    operation: str,
    request: bytes,
    payload: Payload,
    responder: Responder,
    now: float,
    is_here: bool = False,
) -> PendingRequest | None:
    """Execute an operation whose request is JSON. A request that cannot be decoded is an error `invalid`. `is_here`:
    this broker executes it."""
    decoder = _decoders.get(operation) if not is_here else _internal_decoders.get(operation) or _decoders.get(operation)
    if decoder is None:
        if operation not in OPERATIONS:
            detail = f"unknown operation {operation[:64]!r}; allowed are {', '.join(OPERATIONS)}"
            responder.refuse(ErrorView(kind="invalid", detail=detail))
            return None
        decoder = _decoders[operation] = msgspec.json.Decoder(OPERATIONS[operation].request)
    try:
        decoded: Any = decode(decoder, request or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        row = row_of(operation)
        assert row is not None
        responder.refuse(ErrorView(kind="invalid", detail=f"{operation}: {explain(error, row.request)}"))
        return None
    return handlers.ask(operation, decoded, payload, responder, now, is_here)


class _JsonEncodingResponder:
    """Passes views to a responder as JSON."""

    __slots__ = ("_responder",)

    def __init__(self, responder: JsonResponder) -> None:
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
        self._responder.tell(_encoder.encode(view), payload, failure)

    def refuse(self, problem: ErrorView) -> None:
        self._responder.object(problem.kind, problem.detail)
