"""Payloads in recordings: replaced by other bytes of the same length, in JSON by other text.

Each dialect has a function `hide_payloads(socket_name, message, hide)`. It returns the message with its payloads
replaced and everything else unchanged, so that the broker side reads it as before. A message that the dialect cannot
read is replaced completely.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from dragoman.carriers.carrier import Frame, Message
from dragoman.core.packed_jobs import hide_packed

Hide = Callable[[Frame], bytes]  # equal bytes become equal lower-case letters and digits, of the same length

PAYLOAD: Final = "payload"
PAYLOAD_BASE64: Final = "payload_base64"
HIDDEN: Final = (PAYLOAD, PAYLOAD_BASE64, "reason")  # a filter of jobs by a reason has a part of an error
JOBS: Final = "jobs"  # an operation whose filter `text` compares errors, too; other lists compare names


def hide_all(message: Message, hide: Hide, start: int = 0) -> Message:
    """Replace all frames from `start` on."""
    return [*message[:start], *[hide(frame) for frame in message[start:]]]


def hide_json(frame: Frame, hide: Hide, operation: str = "") -> Frame:
    """Replace the payloads in the fields of a request in JSON. A frame that has none stays as it is. `operation`: its
    name, if it is a request."""
    try:
        parsed = json.loads(bytes(frame or b"{}"))
        hidden = hide_request(operation, parsed, hide)
    except (ValueError, RecursionError):
        return hide(frame)
    return frame if hidden == parsed else json.dumps(hidden).encode()


def hide_batch(packed: Frame, hide: Hide) -> bytes:
    """Replace the payloads of packed jobs. Bytes that are no packed jobs are replaced completely."""
    try:
        return hide_packed(packed, lambda fields: bytes(hide_json(fields, hide)), hide)
    except ValueError:
        return hide(packed)


def hide_request(operation: str, fields: Any, hide: Hide) -> Any:
    """Replace the payloads and the filters by text in the fields of a request."""
    hidden = hide_fields(fields, hide)
    if operation == JOBS and isinstance(hidden, dict) and isinstance(hidden.get("text"), str):
        hidden["text"] = hide_text(hidden["text"], hide)
    return hidden


def hide_fields(value: Any, hide: Hide) -> Any:
    """Replace the payloads and the filters by reason in an object of JSON, at any depth."""
    if isinstance(value, dict):
        return {name: _hide_field(name, each, hide) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_fields(each, hide) for each in value]
    return value


def _hide_field(name: str, value: Any, hide: Hide) -> Any:
    if not isinstance(value, str) or name not in HIDDEN:
        return hide_fields(value, hide)
    if name != PAYLOAD_BASE64:
        return hide_text(value, hide)
    digits = value.rstrip("=")
    return hide_text(digits, hide) + "=" * (len(value) - len(digits))


def hide_text(text: str, hide: Hide) -> str:
    """Replace a text by one that has as many bytes in UTF-8."""
    return hide(text.encode("utf-8", "replace")).decode("ascii")
