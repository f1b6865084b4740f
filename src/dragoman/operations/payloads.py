"""Payloads of requests: as text or base64 in the request, or as bytes beside it."""

from __future__ import annotations

from base64 import b64decode

from dragoman.core.model import Payload
from dragoman.operations.schemas import EnqueueRequest, OperationError, ScheduleRequest


def payload_of(form: EnqueueRequest | ScheduleRequest, payload: Payload) -> Payload:
    """The payload of a request, from the one place that has it. Raises OperationError if two have one."""
    if form.payload is None and form.payload_base64 is None:
        return payload
    if payload or (form.payload is not None and form.payload_base64 is not None):
        raise OperationError("invalid", "say one of payload, payload_base64 and a body, not two")
    if form.payload is not None:
        return form.payload.encode()
    assert form.payload_base64 is not None
    try:
        return b64decode(form.payload_base64, validate=True)
    except ValueError:
        raise OperationError("invalid", "payload_base64 is not base64") from None
