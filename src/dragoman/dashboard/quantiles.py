"""Quantiles from histograms: the difference of two readings of the same histogram, linear inside a bucket.

A quantile in the first bucket is returned as SHORTEST, because shorter durations are not told apart; every other one is
above SHORTEST. A quantile beyond the last bound is returned as the last bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import sub
from typing import Final

from dragoman.core.histogram import BOUNDS, SHORTEST

SHARES: Final = (0.5, 0.95, 0.99)


def difference(now: list[int], before: list[int]) -> list[int]:
    """Return the counts that were added between two readings."""
    return list(map(sub, now, before))


def quantiles(counts: list[int], shares: Sequence[float] = SHARES) -> list[float | None]:
    """Return the quantile of each share; None for each if nothing was counted."""
    sums = list(accumulate(counts))
    total = sums[-1]
    if total <= 0:
        return [None] * len(shares)
    found: list[float | None] = []
    for share in shares:
        rank = share * total
        bucket = bisect_left(sums, rank)
        if bucket == 0:
            found.append(SHORTEST)
        elif bucket >= len(BOUNDS):
            found.append(BOUNDS[-1])
        else:
            low, below = BOUNDS[bucket - 1], sums[bucket - 1]
            found.append(low + (rank - below) / counts[bucket] * (BOUNDS[bucket] - low))
    return found


def quantile(counts: list[int], share: float) -> float | None:
    return quantiles(counts, (share,))[0]


def rounded(values: list[float | None]) -> list[float | None]:
    """Return the values with four digits."""
    return [None if each is None else float(f"{each:.4g}") for each in values]
