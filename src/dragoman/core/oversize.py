"""Error message about a payload over its limit. It has the limit's name and value."""

from __future__ import annotations


def over_max_payload(noun: str, size: int, max_payload: int) -> str:
    """Return a message such as `its result of 70 bytes is over max_payload 64`."""
    return f"{noun} of {size} bytes is over max_payload {max_payload}"
