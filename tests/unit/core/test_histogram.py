"""Buckets of durations, their median, and the published buckets."""

from __future__ import annotations

import pytest

from dragoman.core.histogram import BOUNDS, BUCKETS, PUBLISHED, Histogram
from dragoman.http.exposition import histogram


def test_bounds_rise_and_include_the_published_ones() -> None:
    assert sorted(set(BOUNDS)) == BOUNDS
    assert len(BOUNDS) == BUCKETS
    assert set(PUBLISHED) <= set(BOUNDS)


def test_published_buckets_count_what_is_at_most_their_bound() -> None:
    """Metrics have fewer buckets than the core, and the same lines as before."""
    durations = [0.0, *(bound * factor for bound in BOUNDS for factor in (0.999, 1.0, 1.001))]
    counted = Histogram()
    for seconds in durations:
        counted.observe(seconds)
    lines = histogram("run", 'service="s"', counted).splitlines()
    expected = [(repr(bound), sum(each <= bound for each in durations)) for bound in PUBLISHED]
    expected.append(("+Inf", len(durations)))
    assert lines[:-2] == [f'run_bucket{{service="s",le="{bound}"}} {count}' for bound, count in expected]
    assert lines[-2:] == [f'run_count{{service="s"}} {len(durations)}', f'run_sum{{service="s"}} {counted.total}']


@pytest.mark.parametrize(
    ("durations", "median"),
    [
        ([], None),
        ([0.0001] * 3, 0.0005),
        ([9_000.0], 1_000.0),
        ([1.2] * 4, 1.3),  # the middle of the bucket from 1 to 1.6 seconds
        ([0.0001, 0.0001, 0.0001, 5.0], 0.0005),
        ([0.0001, 2.0, 2.0, 2.0], 1.6 + 0.9 / 3),
    ],
)
def test_median_is_within_the_bucket_of_the_true_one(durations: list[float], median: float | None) -> None:
    counted = Histogram()
    for seconds in durations:
        counted.observe(seconds)
    assert counted.median() == (median if median is None else pytest.approx(median))
