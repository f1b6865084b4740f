"""Payloads of Powerhose's messages, for recordings."""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Message
from dragoman.dialects.frontend import FRONTEND
from dragoman.dialects.hidden_fields import Hide, hide_all
from dragoman.dialects.powerhose.messages import JOBRES, SEPARATOR

RESULT: Final = JOBRES + SEPARATOR
ID: Final = 32  # hex digits of a job's id


def hide_payloads(socket_name: str, message: Message, hide: Hide) -> Message:
    """Replace the payload of a job or a result. Registrations and control messages have none."""
    if socket_name == FRONTEND or len(message) != 2:
        return hide_all(message, hide)
    body = bytes(message[1])
    if not body.startswith(RESULT):
        return message
    start = len(RESULT)
    id, _, _ = body[start:].partition(SEPARATOR)
    if len(id) == ID:  # workers in some languages leave it out
        start += min(ID + len(SEPARATOR), len(body) - start)
    return [message[0], body[:start] + hide(body[start:])]
