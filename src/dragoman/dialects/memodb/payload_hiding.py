"""Payloads of MemoDB's messages, for recordings."""

from __future__ import annotations

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.dialects.hidden_fields import Hide
from dragoman.dialects.memodb.codec import read
from dragoman.dialects.memodb.messages import Job, Result


def hide_payloads(socket_name: str, message: Message, hide: Hide) -> Message:
    """Replace what follows the header of a JOB or a RESULT. The first frame is the carrier's route."""
    return [*message[:1], *[_hide(bytes(body), hide) for body in message[1:]]]


def _hide(body: bytes, hide: Hide) -> Frame:
    try:
        parsed = read(body)
    except Malformed:
        return hide(body)
    if not isinstance(parsed, Job | Result):
        return body
    end = len(body) - len(parsed.payload)
    return body[:end] + hide(parsed.payload)
