"""Time-outs that a caller does not say: the number that usually holds, and that is not sent."""

from __future__ import annotations

from math import inf
from typing import Final


class Unset(float):
    """A default. What holds is up to the listener, or to the address; this is what it is unless they were changed."""


TIMEOUT: Final = Unset(inf)
JOB_TIMEOUT: Final = Unset(60.0)
QUEUE_TIMEOUT: Final = Unset(inf)


def is_set(seconds: float | None) -> float | None:
    """As a dialect's side takes it: None if it is not said, inf if there is to be no limit."""
    if isinstance(seconds, Unset):
        return None
    return inf if seconds is None else seconds
