"""The sentence about a payload that is over its limit. Whoever reads it learns the limit's name and value."""

from __future__ import annotations


def over_max_payload(noun: str, size: int, max_payload: int) -> str:
    """Such as `its result of 70 bytes is over max_payload 64`."""
    return f"{noun} of {size} bytes is over max_payload {max_payload}"
