"""The payload of a request: a field with text or base64, or the bytes beside the request."""

from __future__ import annotations

from base64 import b64decode
from typing import Protocol

from dragoman.core.model import Payload
from dragoman.operations.schemas import OperationError


class PayloadFields(Protocol):
    """A request, or a job of a batch."""

    @property
    def payload(self) -> str | None: ...

    @property
    def payload_base64(self) -> str | None: ...


def payload_of(request: PayloadFields, payload: Payload) -> Payload:
    """Return the payload: from a field of the request, else `payload`. Raises OperationError if there are two."""
    if request.payload is None and request.payload_base64 is None:
        return payload
    if payload or (request.payload is not None and request.payload_base64 is not None):
        raise OperationError(
            "invalid", "the request has two payloads; set only one of payload, payload_base64 and the body"
        )
    if request.payload is not None:
        return request.payload.encode()
    assert request.payload_base64 is not None
    try:
        return b64decode(request.payload_base64, validate=True)
    except ValueError:
        raise OperationError("invalid", "payload_base64 is not valid base64") from None
