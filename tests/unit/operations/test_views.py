"""Times in views: to the millisecond, one object for jobs with the same time."""

from __future__ import annotations

from datetime import UTC, datetime

from dragoman.operations.views import moment


def test_time_is_shown_to_the_millisecond() -> None:
    assert moment(1_700_000_000.1234) == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert moment(1_700_000_000.1236) == datetime(2023, 11, 14, 22, 13, 20, 124_000, UTC)
    assert moment(0.0) == datetime(1970, 1, 1, tzinfo=UTC)


def test_moments_of_one_millisecond_are_one_object() -> None:
    first = moment(1_700_000_000.5)
    assert moment(1_700_000_000.5001) is first
    assert moment(1_700_000_000.501) > first
    assert moment(1_700_000_000.5) == first
