"""Internal errors of the last minute, for the broker's health (R27)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from dragoman.core.counters import Counters

MINUTE: Final = 60.0


class RecentFaults:
    """Counts internal errors as far as it is asked: only checks of the last minute are compared."""

    def __init__(self, counters: Counters, now: Callable[[], float]) -> None:
        self._counters = counters
        self._now = now
        self._checks: deque[tuple[float, int]] = deque()  # (time, number of internal errors)

    def count(self) -> int:
        now, errors = self._now(), self._counters.internal_errors
        self._checks.append((now, errors))
        while self._checks[0][0] < now - MINUTE:
            self._checks.popleft()
        return errors - self._checks[0][1]
