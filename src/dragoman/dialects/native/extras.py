"""Extras of jobs on the native wire: an object in SUBMIT, fields of the request in ASK. Readers raise Malformed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.malformed import Malformed
from dragoman.core.ids import JobId
from dragoman.core.job_extras import JobExtras, given_extras
from dragoman.core.tenants import tenant_problem
from dragoman.dialects.native.messages import NAME, Flag

PARENT: Final = "parent"
TRACEPARENT: Final = "traceparent"
TENANT: Final = "tenant"
REQUEST_ID: Final = "request_id"
PARAMETERS: Final = "parameters"  # of `enqueue` and `enqueue many` only: the caller's parameters of a task (R268)
OF_SUBMIT: Final = (PARENT, TRACEPARENT, TENANT, REQUEST_ID, PARAMETERS)  # those that are understood, as in WELCOME
MOST_EXTRAS: Final = 4096  # bytes


def read_extras(frame: Frame) -> JobExtras | None:
    """Parse the extras of SUBMIT. Unknown keys are ignored."""
    if len(frame) > MOST_EXTRAS:
        raise Malformed("malformed", f"{len(frame)} bytes of extras; at most {MOST_EXTRAS} are allowed")
    try:
        facts = json.loads(bytes(frame).decode())
    except (ValueError, RecursionError):
        raise Malformed("malformed", "the extras are not JSON") from None
    if not isinstance(facts, dict):
        raise Malformed("malformed", "the extras are not a JSON object")
    traceparent = facts.get(TRACEPARENT)
    traceparent = traceparent if isinstance(traceparent, str) else None
    return given_extras(_parent(facts.get(PARENT)), traceparent, _tenant(facts.get(TENANT)))


def _parent(value: Any) -> JobId | None:
    if value is None:
        return None
    try:
        id = bytes.fromhex(value)
    except (TypeError, ValueError):
        id = b""
    if len(id) != NAME:
        raise Malformed("malformed", "the parent in extras must be the id of a job, 32 hex digits")
    return JobId(id)


def _tenant(value: Any) -> str:
    if value is None:
        return ""
    problem = tenant_problem(value) if isinstance(value, str) else "the tenant in extras must be a text"
    if problem is not None:
        raise Malformed("malformed", problem)
    return str(value)


def write_extras(extras: JobExtras, understood: tuple[str, ...]) -> bytes:
    """Return the extras that the broker understands as JSON; empty if there are none."""
    facts: dict[str, str] = {}
    if extras.parent is not None and PARENT in understood:
        facts[PARENT] = extras.parent.hex()
    if extras.traceparent and TRACEPARENT in understood:
        facts[TRACEPARENT] = extras.traceparent
    if extras.tenant and TENANT in understood:
        facts[TENANT] = extras.tenant
    return json.dumps(facts).encode() if facts else b""


def submit_with(frames: Sequence[Frame], extras: JobExtras, understood: tuple[str, ...]) -> Sequence[Frame]:
    """Return a SUBMIT with the extras of its jobs, as far as the broker understands them."""
    written = write_extras(extras, understood)
    if not written:
        return frames
    head = frames[0]
    return [head[:1] + bytes((head[1] | Flag.EXTRAS,)) + head[2:], frames[1], written, *frames[2:]]


def add_extras(request: bytes, extras: JobExtras, understood: tuple[str, ...], most: int) -> bytes:
    """Return the request of an operation, a JSON object, with extras as fields of their own if there is room."""
    written = write_extras(extras, understood)
    return _joined(request, written, most) if written else request


def add_field(request: bytes, name: str, text: str, most: int) -> bytes:
    """Return the request of an operation with one more field if there is room. The text has no quotes."""
    return _joined(request, f'{{"{name}": "{text}"}}'.encode(), most)


def _joined(request: bytes, written: bytes, most: int) -> bytes:
    body = request.strip()
    if len(body) + len(written) > most:
        return request
    return written if body in (b"", b"{}") else body[:-1] + b", " + written[1:]


def without_parameters(request: bytes) -> bytes:
    """Return the request of an operation without `parameters`, for a broker that does not understand it."""
    fields = json.loads(request)
    fields.pop(PARAMETERS, None)
    return json.dumps(fields).encode()
