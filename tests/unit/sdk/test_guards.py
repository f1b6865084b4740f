"""Coarse timers of many jobs."""

from __future__ import annotations

import sys
from math import inf

import pytest

from dragoman.sdk.coarse_timers import CoarseTimers


@pytest.mark.parametrize("seconds", [0.001, 0.3, 1.0, 30.5, 86_400.0, 1e300])
def test_nothing_is_due_too_early_nor_much_too_late(seconds: float) -> None:
    guards: CoarseTimers[str] = CoarseTimers()
    due = guards.add("job", seconds, 1000.0)
    assert 1000.0 + seconds <= due <= 1000.0 + seconds * (1 + 1 / 32)
    assert guards.next_due() == due
    assert guards.overdue(1000.0) == []
    assert guards.overdue(due) == ["job"]
    assert guards.next_due() == inf


def test_what_is_discarded_is_never_due() -> None:
    guards: CoarseTimers[str] = CoarseTimers()
    due = guards.add("a", 1.0, 0.0)
    guards.add("b", 1.0, 0.0)
    guards.discard("a", due)
    guards.discard("a", due)
    assert guards.overdue(10.0) == ["b"]
    guards.discard("b", due)


def test_jobs_that_wait_equally_long_share_their_due_times() -> None:
    guards: CoarseTimers[int] = CoarseTimers()
    due = {guards.add(number, 30.0, number / 1000) for number in range(10_000)}
    assert len(due) < 50
    assert sorted(guards.overdue(1e6)) == list(range(10_000))


def test_what_was_guarded_leaves_nothing_behind() -> None:
    """A bug: a dict that is emptied keeps its room, and there was one for each second to come."""
    guards: CoarseTimers[int] = CoarseTimers()
    due = [(number, guards.add(number, 60.0, 0.0)) for number in range(10_000)]
    for number, when in due:
        guards.discard(number, when)
    assert sum(map(sys.getsizeof, guards._due.values())) < 1000


def test_the_first_due_comes_first() -> None:
    guards: CoarseTimers[str] = CoarseTimers()
    guards.add("late", 50.0, 0.0)
    guards.add("soon", 1.0, 0.0)
    assert guards.overdue(2.0) == ["soon"]
    assert guards.overdue(100.0) == ["late"]
