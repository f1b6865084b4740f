"""Calls of one frame, over ZeroMQ: for callers of dialects whose document says nothing of callers.

    caller → broker    ["", job]
    broker → caller    ["", result], or ["", "", "ERROR", "<outcome>: <sentence>"]

Here are the frames that the broker reads and writes. Its side of a call is `frontend.py`, the client's
`plain_client.py`.
"""

from __future__ import annotations

from typing import Final

from dragoman.carriers.carrier import Frame, Message
from dragoman.carriers.malformed import Malformed
from dragoman.core.states import Outcome

ERROR: Final = b"ERROR"


def read_call(message: Message) -> Frame:
    """A caller's job."""
    if len(message) != 2 or message[0]:
        if len(message) > 2 and not message[0]:
            raise Malformed("unexpected frames", f"a job of {len(message) - 1} frames where one is spoken")
        raise no_envelope(message)
    return message[1]


def write_error(outcome: Outcome, reason: str) -> list[Frame]:
    return [b"", b"", ERROR, f"{outcome}: {reason}".encode("utf-8", "replace")]


def no_envelope(message: Message) -> Malformed:
    if len(message) < 2:
        return Malformed("too few frames", f"{len(message)} frames where at least an empty one and a word are spoken")
    return Malformed("no delimiter", f"the first frame has {len(message[0])} bytes and should be empty")
