"""Histogram of durations: counts in fixed buckets."""

from __future__ import annotations

from typing import Final

# Upper bounds in seconds. Longer durations are counted in one more bucket.
SHORTEST: Final = 0.0005
BOUNDS: Final = [SHORTEST, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0]
BUCKETS: Final = 16  # number of bounds; one more bucket is for longer durations


class Histogram:
    """Counts durations. Optimized for very short ones, which are the most frequent."""

    __slots__ = ("_longer", "_shortest", "total")

    def __init__(self) -> None:
        self._shortest = 0  # count of the first bucket
        self._longer = [0] * (BUCKETS + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.total += seconds
        if seconds <= SHORTEST:
            self._shortest += 1
        else:
            bucket = 1
            while bucket < BUCKETS and seconds > BOUNDS[bucket]:  # most are short: faster than bisect
                bucket += 1
            self._longer[bucket] += 1

    @property
    def counts(self) -> list[int]:
        """Counts by bucket."""
        return [self._shortest, *self._longer[1:]]

    @counts.setter
    def counts(self, counts: list[int]) -> None:
        self._shortest, self._longer = counts[0], [0, *counts[1:]]
