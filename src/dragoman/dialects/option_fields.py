"""Fields of option classes: a default and the range that a URL may choose from. Seconds and bytes everywhere."""

from __future__ import annotations

from dataclasses import field
from typing import Final

SHORTEST: Final = 0.001  # seconds: the least of a period that cannot be nothing
MOST_ATTEMPTS: Final = 100


def seconds(default: float, least: float = SHORTEST, most: float | None = None) -> float:
    return field(default=default, metadata={"min": least} if most is None else {"min": least, "max": most})


def time_limit(default: float) -> float:
    """Seconds that something may take; 0 is allowed."""
    return seconds(default, least=0.0)


def count(default: int, least: int = 1, most: int | None = None) -> int:
    return field(default=default, metadata={"min": least} if most is None else {"min": least, "max": most})


def attempts() -> int | None:
    """Attempts of a job that does not bring a number; None: the larger default of the two dialects (D8)."""
    return field(default=None, metadata={"min": 1, "max": MOST_ATTEMPTS})
