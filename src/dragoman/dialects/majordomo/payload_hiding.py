"""Payloads of Majordomo's messages, for recordings."""

from __future__ import annotations

from dragoman.carriers.carrier import Message
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.hidden_fields import Hide, hide_all
from dragoman.dialects.majordomo.codec import recognise


def hide_payloads(socket_name: str, message: Message, hide: Hide) -> Message:
    """Replace the body of a request or a reply. Every message shows its edition."""
    try:
        wire, is_worker = recognise(message)
    except Malformed:
        return hide_all(message, hide)
    if not is_worker:
        has_command = wire.client_request is not None
        return hide_all(message, hide, len(wire.client_head) + has_command + 1)
    at = len(wire.worker_head)
    is_reply = len(message) > at and message[at] in (wire.final, wire.partial)
    return hide_all(message, hide, at + 3) if is_reply else message
