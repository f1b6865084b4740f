"""Markers for time-outs that the caller does not set. They are not sent; their value documents the usual default."""

from __future__ import annotations

from math import inf
from typing import Final


class Unset(float):
    """A default that the listener or the URL may override."""


TIMEOUT: Final = Unset(inf)
JOB_TIMEOUT: Final = Unset(60.0)
QUEUE_TIMEOUT: Final = Unset(inf)


def is_set(seconds: float | None) -> float | None:
    """Convert a time-out for the client side of a dialect: None if it is not set, inf for no limit."""
    if isinstance(seconds, Unset):
        return None
    return inf if seconds is None else seconds
