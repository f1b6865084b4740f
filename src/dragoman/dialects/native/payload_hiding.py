"""Payloads of the native dialect's messages, for recordings."""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.core.failure import read_decision
from dragoman.dialects.hidden_fields import Hide, hide_all, hide_batch, hide_json
from dragoman.dialects.native.extras import OF_SUBMIT, read_extras, write_extras
from dragoman.dialects.native.messages import (
    ASK,
    FAILED,
    MESSAGE_NAMES,
    NAME,
    NUMBER,
    PART,
    PROGRESS,
    RESULT,
    SUBMIT,
    Flag,
)

# Index of the first frame of payloads. FAILED: the type of the error stays, its message and its traceback do not.
FIRST: Final = {SUBMIT: 2, RESULT: 1, FAILED: 2, PROGRESS: 1, PART: 1, ASK: 2}
ENQUEUE_MANY: Final = b"enqueue many"  # an operation whose payload has many jobs


def hide_payloads(socket_name: str, message: Message, hide: Hide) -> Message:
    """Replace payloads, results and texts of failures. A worker's decision about retries stays: the broker reads it."""
    kind = message[0][0] if message and message[0] else 0
    if kind not in MESSAGE_NAMES:
        return hide_all(message, hide)
    if kind == ASK and len(message) > 2 and bytes(message[0][1 + NUMBER :]) == ENQUEUE_MANY:
        return [message[0], hide_json(message[1], hide), hide_batch(message[2], hide)]
    if kind == ASK and len(message) > 1:
        operation = bytes(message[0][1 + NUMBER :]).decode("utf-8", "replace")
        return hide_all([message[0], hide_json(message[1], hide, operation), *message[2:]], hide, FIRST[ASK])
    if kind == SUBMIT and _has_extras(message):
        return [*message[:2], _readable_extras(message[2], hide), *hide_all(message[3:], hide)]
    if (
        kind == FAILED
        and len(message) > 4
        and read_decision(bytes(message[4]).decode("utf-8", "replace"))[0] is not None
    ):
        return [*hide_all(message[:4], hide, FIRST[FAILED]), *message[4:]]
    return hide_all(message, hide, FIRST.get(kind, len(message)))


def _has_extras(message: Message) -> bool:
    """True for a SUBMIT that has one frame more than its ids need."""
    head = message[0]
    return len(head) > 1 and bool(head[1] & Flag.EXTRAS) and len(message) - 3 == len(message[1]) // NAME


def _readable_extras(frame: Frame, hide: Hide) -> Frame:
    """Return the extras that the broker understands, and nothing else that the frame may have."""
    try:
        extras = read_extras(frame)
    except Malformed:
        return hide(frame)
    return write_extras(extras, OF_SUBMIT) if extras is not None else b"{}"
