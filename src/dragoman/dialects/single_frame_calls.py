"""Frames of single-frame calls over ZeroMQ, for dialects whose document does not describe callers.

    caller → broker    ["", job]
    broker → caller    ["", result], or ["", "", "ERROR", "<outcome>: <reason>"]

The broker's side of a call is `frontend.py`, the client's `single_frame_client.py`.
"""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.core.states import Outcome

ERROR: Final = b"ERROR"


def read_call(message: Message) -> Frame:
    """Return the payload of a call. Raises Malformed."""
    if len(message) != 2 or message[0]:
        if len(message) > 2 and not message[0]:
            raise Malformed("unexpected frames", f"the job has {len(message) - 1} frames; only one is allowed")
        raise no_envelope(message)
    return message[1]


def write_error(outcome: Outcome, reason: str) -> list[Frame]:
    return [b"", b"", ERROR, f"{outcome}: {reason}".encode("utf-8", "replace")]


def no_envelope(message: Message) -> Malformed:
    if len(message) < 2:
        return Malformed("too few frames", f"{len(message)} frames; an empty one and a body are required")
    return Malformed("no delimiter", f"the first frame has {len(message[0])} bytes and should be empty")
