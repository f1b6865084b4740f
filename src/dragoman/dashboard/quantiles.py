"""Quantiles from histograms: the difference of two readings of the same histogram, linear inside a bucket.

A quantile in the first bucket is returned as SHORTEST, because shorter durations are not told apart; every other one is
above SHORTEST. A quantile beyond the last bound is returned as the last bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.core.histogram import BOUNDS, SHORTEST

SHARES = (0.5, 0.95, 0.99)


def difference(now: Sequence[int], before: Sequence[int]) -> list[int]:
    """Return the counts that were added between two readings."""
    return [a - b for a, b in zip(now, before, strict=True)]


def quantiles(counts: Sequence[int], shares: Sequence[float] = SHARES) -> list[float] | None:
    """Return the quantile of each share, which must rise, with four digits; None if nothing was counted."""
    total = sum(counts)
    if total <= 0:
        return None
    found: list[float] = []
    bucket, below = 0, 0
    for share in shares:
        rank = share * total
        while bucket < len(BOUNDS) and below + counts[bucket] < rank:
            below += counts[bucket]
            bucket += 1
        found.append(_inside(bucket, (rank - below) / counts[bucket] if bucket < len(BOUNDS) else 0.0))
    return found


def quantile(counts: Sequence[int], share: float) -> float | None:
    found = quantiles(counts, (share,))
    return found[0] if found is not None else None


def _inside(bucket: int, part: float) -> float:
    """Return the duration that lies this part of the way through a bucket."""
    if bucket == 0:
        return SHORTEST
    if bucket >= len(BOUNDS):
        return BOUNDS[-1]
    low, high = BOUNDS[bucket - 1], BOUNDS[bucket]
    return float(f"{low + max(part, 0.01) * (high - low):.4g}")
