"""Notes about the beginning of a log: how far its owner has cleaned it.

A log begins with its first message, or with a claim up to which an owner has cleaned it. Before the owner purges what
is before that claim, it notes the claim's sequence in the log. So a log that was purged by hand up to another claim,
which would look whole, is recognized (C9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "log/"
BEGINNING: Final = PREFIX + "beginning"


def missing_beginning(notes: Mapping[str, str], first: int) -> str:
    """Return the sentence about a log whose beginning was not removed by an owner; empty: it is whole."""
    text = notes.get(BEGINNING, "1")
    cleaned = int(text) if text.isdecimal() else 1
    if first <= cleaned:
        return ""
    return f"the log begins with {first}, and was cleaned up to {cleaned}: somebody has purged it, so jobs are missing"
