"""Quantiles from histograms, compared with exact ones."""

from __future__ import annotations

from bisect import bisect_left
from random import Random

from dragoman.core.histogram import BOUNDS, SHORTEST, Histogram
from dragoman.dashboard.quantiles import SHARES, difference, quantile, quantiles


def counts_of(durations: list[float]) -> list[int]:
    histogram = Histogram()
    for each in durations:
        histogram.observe(each)
    return histogram.counts


def test_nothing_counted_has_no_quantiles() -> None:
    assert quantiles(counts_of([])) == [None, None, None]
    assert quantile(counts_of([]), 0.5) is None


def test_short_durations_are_shown_as_half_a_millisecond() -> None:
    """0.0005 stands for all durations up to it, and for no other."""
    assert quantiles(counts_of([0.0, 0.0001, SHORTEST])) == [SHORTEST] * 3
    assert quantiles(counts_of([0.0001] * 98 + [0.0006] * 2))[:2] == [SHORTEST, SHORTEST]
    longer = quantile(counts_of([0.0001] * 98 + [0.0006] * 2), 0.99)
    assert longer is not None
    assert longer > SHORTEST


def test_durations_beyond_the_last_bound_are_shown_as_the_bound() -> None:
    assert quantiles(counts_of([1e6])) == [BOUNDS[-1]] * 3


def test_quantiles_are_in_the_bucket_of_the_exact_ones() -> None:
    random = Random(7)
    for scale in (0.002, 0.05, 3.0, 100.0):
        durations = sorted(random.expovariate(1.0 / scale) for _ in range(1_000))
        for share, found in zip(SHARES, quantiles(counts_of(durations)), strict=True):
            exact = durations[int(share * 1_000) - 1]
            assert found is not None
            assert abs(bisect_left(BOUNDS, found) - bisect_left(BOUNDS, exact)) <= 1, (scale, share, found, exact)


def test_quantiles_rise() -> None:
    found = quantiles(counts_of([0.02] * 10))
    assert found == sorted(found)
    assert 0.01 < found[0] <= 0.025


def test_difference_has_what_came_between_two_readings() -> None:
    histogram = Histogram()
    histogram.observe(5.0)
    before = histogram.counts
    histogram.observe(0.03)
    found = quantile(difference(histogram.counts, before), 0.5)
    assert found is not None
    assert 0.025 <= found <= 0.05
