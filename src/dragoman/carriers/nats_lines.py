"""Lines of control that a NATS client sends besides messages, and the limits of a connection.

A subject is a word of tokens between dots. In a subscription a token may be `*`, any one token, and the last may be
`>`, one or more tokens. A subscription has a number (`sid`) that the client chooses, and may belong to a queue group,
of which one member gets each message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dragoman.carriers.large_frame import MIB

PING_LINE: Final = b"PING\r\n"
PONG_LINE: Final = b"PONG\r\n"
FLUSH: Final = [PING_LINE]  # a message of the carrier; its PONG is returned as `[b"PONG"]`

TOKENS: Final = re.compile(rb"[^\s.*>]+(?:\.[^\s.*>]+)*")
FILTER: Final = re.compile(rb"(?:(?:[^\s.*>]+|\*)\.)*(?:[^\s.*>]+|\*|>)")
NUMBER: Final = re.compile(rb"[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class NatsLimits:
    """Maximum number of bytes of the parts of a message from the server."""

    max_line: int = 64 * 1024  # subject, reply and numbers
    max_info: int = 256 * 1024
    max_headers: int = 64 * 1024
    max_payload: int = 64 * MIB
    hard_cap: int = (
        1024 * MIB
    )  # a message over max_headers or max_payload is dropped; one over this ends the connection

    def __post_init__(self) -> None:
        if min(self.max_line, self.max_info, self.max_headers, self.max_payload) < 1:
            raise ValueError(f"each limit must be above 0: {self}")
        if self.hard_cap < self.max_headers + self.max_payload:
            raise ValueError(f"hard_cap must be at least max_headers plus max_payload: {self}")


DEFAULT_LIMITS: Final = NatsLimits()


def is_word(text: bytes | bytearray) -> bool:
    """True if a text can stand in a line: it is not empty and has no white space."""
    return len(text.split()) == 1 and not text[:1].isspace() and not text[-1:].isspace()


def is_subject(text: bytes) -> bool:
    """True if messages can be published to this subject: tokens between dots, none of them empty, no wildcard."""
    return TOKENS.fullmatch(text) is not None


def is_filter(text: bytes) -> bool:
    """True if a subscription can have this subject, which may have wildcards."""
    return FILTER.fullmatch(text) is not None


def subscribe_line(sid: bytes, subject: bytes, queue: bytes = b"") -> bytes:
    """Return SUB. Raises ValueError."""
    _check_sid(sid)
    if not is_filter(subject):
        raise ValueError(f"{subject[:100]!r} is not a subject of a subscription; write tokens between dots, '*' or '>'")
    if queue and not is_word(queue):
        raise ValueError(f"{queue[:100]!r} is not a queue group; write one word without spaces")
    words = [b"SUB", subject, queue, sid] if queue else [b"SUB", subject, sid]
    return b" ".join(words) + b"\r\n"


def unsubscribe_line(sid: bytes, after: int = 0) -> bytes:
    """Return UNSUB. `after`: messages, counted from the subscription's beginning, after which it ends; 0: at once."""
    _check_sid(sid)
    if after < 0:
        raise ValueError(f"after={after}: a number of messages is 0 or more")
    return b"UNSUB %b %d\r\n" % (sid, after) if after else b"UNSUB %b\r\n" % sid


def _check_sid(sid: bytes) -> None:
    if NUMBER.fullmatch(sid) is None:
        raise ValueError(f"{sid[:30]!r} is not a number of a subscription; numbers begin at 1")
