"""Payloads of Worker-Controller's messages, for recordings."""

from __future__ import annotations

from dragoman.carriers.carrier import Message
from dragoman.dialects.hidden_fields import Hide, hide_all


def hide_payloads(socket_name: str, message: Message, hide: Hide) -> Message:
    """Replace the extra bytes: a message is a head and these."""
    return hide_all(message, hide, 1)
