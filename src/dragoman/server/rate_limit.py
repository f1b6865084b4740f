"""Limits for log lines, so that one cause or one source does not flood the log."""

from __future__ import annotations

from collections.abc import Hashable

from dragoman.core.infinity import inf


class RateLimit:
    """Allows `most` lines in `interval` seconds, for each key. An interval begins with its first line.

    A key is kept until its interval has ended and another key begins one.
    """

    def __init__(self, most: int, interval: float) -> None:
        self._most = most
        self._interval = interval
        self._intervals: dict[Hashable, tuple[float, int]] = {}  # by key: its end, and the lines requested in it
        self._sweep_at = -inf

    def is_open(self, key: Hashable, now: float) -> bool:
        """True if a line may be written."""
        end, count = self._intervals.get(key, (-inf, 0))
        return end <= now or count < self._most

    def take(self, key: Hashable, now: float) -> int:
        """Request a line. Returns its number in the interval: it may be written if that is at most `most`."""
        end, count = self._intervals.get(key, (-inf, 0))
        if end <= now:
            self._sweep(now)
            end, count = now + self._interval, 0
        self._intervals[key] = end, count + 1
        return count + 1

    def forget(self, key: Hashable) -> None:
        self._intervals.pop(key, None)

    def _sweep(self, now: float) -> None:
        if self._sweep_at <= now:
            self._sweep_at = now + self._interval
            self._intervals = {key: each for key, each in self._intervals.items() if each[0] > now}
