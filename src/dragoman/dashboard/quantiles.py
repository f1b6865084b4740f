"""Quantiles from histograms: the difference of two readings of the same histogram, linear inside a bucket.

A quantile in the first bucket is returned as SHORTEST, because shorter durations are not told apart; every other one is
above SHORTEST. A quantile beyond the last bound is returned as the last bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.core.histogram import BOUNDS, SHORTEST

SHARES = (0.5, 0.95, 0.99)
NONE: list[float | None] = [None, None, None]


def difference(now: Sequence[int], before: Sequence[int]) -> list[int]:
    """Return the counts that were added between two readings."""
    return [a - b for a, b in zip(now, before, strict=True)]


def quantiles(counts: Sequence[int], shares: Sequence[float] = SHARES) -> list[float | None]:
    """Return the quantile of each share, which must rise; None for each if nothing was counted."""
    total = sum(counts)
    if total <= 0:
        return [None] * len(shares)
    found: list[float | None] = []
    bucket, below = 0, 0
    for share in shares:
        rank = share * total
        while bucket < len(BOUNDS) and below + counts[bucket] < rank:
            below += counts[bucket]
            bucket += 1
        found.append(_inside(bucket, (rank - below) / counts[bucket] if bucket < len(BOUNDS) else 0.0))
    return found


def quantile(counts: Sequence[int], share: float) -> float | None:
    return quantiles(counts, (share,))[0]


def _inside(bucket: int, part: float) -> float:
    """Return the duration that lies this part of the way through a bucket."""
    if bucket == 0:
        return SHORTEST
    if bucket >= len(BOUNDS):
        return BOUNDS[-1]
    low, high = BOUNDS[bucket - 1], BOUNDS[bucket]
    return low + max(part, 1e-6) * (high - low)
