"""Payloads of PingPong's messages, for recordings."""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Message
from dragoman.dialects.frontend import FRONTEND
from dragoman.dialects.hidden_fields import Hide, hide_all
from dragoman.dialects.pingpong.messages import DISCONNECT, EXIT, JOB_COMPLETE, PING, PONG, READY

CONTROL: Final = (READY, PING, PONG, EXIT, DISCONNECT)


def hide_payloads(socket_name: str, message: Message, hide: Hide) -> Message:
    """Replace the payload of a job or a result. Messages of both editions are recognised by their frames."""
    if socket_name == FRONTEND or len(message) < 2:
        return hide_all(message, hide)
    if message[1] in CONTROL:
        return message
    return hide_all(message, hide, 4 if message[1] == JOB_COMPLETE else 0)
