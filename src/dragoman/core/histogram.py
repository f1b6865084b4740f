"""Histogram of durations: counts in fixed buckets."""

from __future__ import annotations

from typing import Final

from dragoman.core.infinity import inf

# Upper bounds in seconds: six a decade, and a minute and five minutes. Longer durations are counted in one more bucket.
SHORTEST: Final = 0.0005
# fmt: off
BOUNDS: Final = [
    SHORTEST, 0.0007,
    0.001, 0.0016, 0.0025, 0.0035, 0.005, 0.007,
    0.01, 0.016, 0.025, 0.035, 0.05, 0.07,
    0.1, 0.16, 0.25, 0.35, 0.5, 0.7,
    1.0, 1.6, 2.5, 3.5, 5.0, 7.0,
    10.0, 16.0, 25.0, 35.0, 50.0, 60.0, 70.0,
    100.0, 160.0, 250.0, 300.0, 350.0, 500.0, 700.0,
    1000.0,
]
# fmt: on
BUCKETS: Final = 41  # number of bounds; one more bucket is for longer durations
# Bounds of the published metrics. Their number is that of the lines of a scrape, so they are fewer.
PUBLISHED: Final = [SHORTEST, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0]


class Histogram:
    """Counts durations. Optimized for very short ones, which are the most frequent."""

    __slots__ = ("_above", "_bucket", "_longer", "_shortest", "_up_to", "total")

    def __init__(self) -> None:
        self._shortest = 0  # count of the first bucket
        self._longer = [0] * (BUCKETS + 1)
        self._bucket = 1  # the last one that a longer duration was counted in: the next one is often the same
        self._above = SHORTEST  # the bounds of that bucket
        self._up_to = BOUNDS[1]
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.total += seconds
        if seconds <= SHORTEST:
            self._shortest += 1
        elif self._above < seconds <= self._up_to:
            self._longer[self._bucket] += 1
        else:
            self._count_longer(seconds)

    def _count_longer(self, seconds: float) -> None:
        low = 1
        high = BUCKETS
        while low < high:  # compiled, it takes half the time of `bisect_left`, whose arguments are objects
            middle = (low + high) >> 1
            if seconds > BOUNDS[middle]:
                low = middle + 1
            else:
                high = middle
        self._longer[low] += 1
        self._bucket = low
        self._above = BOUNDS[low - 1]
        self._up_to = BOUNDS[low] if low < BUCKETS else inf

    @property
    def counts(self) -> list[int]:
        """Counts by bucket."""
        return [self._shortest, *self._longer[1:]]

    @counts.setter
    def counts(self, counts: list[int]) -> None:
        self._shortest, self._longer = counts[0], [0, *counts[1:]]

    def median(self) -> float | None:
        """Return the median, linear within its bucket; None if nothing was counted. The two outermost buckets give
        their bound."""
        counts = self.counts
        half = sum(counts) / 2.0
        if not half:
            return None
        bucket = below = 0
        while below + counts[bucket] < half:
            below += counts[bucket]
            bucket += 1
        if bucket == 0 or bucket == BUCKETS:
            return BOUNDS[min(bucket, BUCKETS - 1)]
        low = BOUNDS[bucket - 1]
        return low + (BOUNDS[bucket] - low) * (half - below) / counts[bucket]
