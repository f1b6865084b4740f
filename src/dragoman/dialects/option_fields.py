"""Fields of option classes: a default and the range that a URL may set. Units are seconds and bytes."""

from __future__ import annotations

from dataclasses import field
from typing import Final

SHORTEST: Final = 0.001  # seconds: the minimum of a period that cannot be zero
MOST_ATTEMPTS: Final = 100


def seconds(default: float, least: float = SHORTEST, most: float | None = None) -> float:
    return field(default=default, metadata={"min": least} if most is None else {"min": least, "max": most})


def time_limit(default: float) -> float:
    """Return a field for a time limit in seconds; 0 is allowed."""
    return seconds(default, least=0.0)


def count(default: int, least: int = 1, most: int | None = None) -> int:
    return field(default=default, metadata={"min": least} if most is None else {"min": least, "max": most})


def attempts() -> int | None:
    """Return a field for a job's attempts, if the job sets none; None: the larger default of the two dialects (D8)."""
    return field(default=None, metadata={"min": 1, "max": MOST_ATTEMPTS})
