from __future__ import annotations

import gc
import weakref

from dragoman.core.counters import Counters
from dragoman.server.rate_limit import RateLimit
from dragoman.server.reports import WARNINGS_PER_SECOND, Reports


def test_lines_are_numbered_within_an_interval_that_begins_with_the_first() -> None:
    limit = RateLimit(2, 10.0)
    assert [limit.take("a", now) for now in (100.5, 101.0, 110.4)] == [1, 2, 3]
    assert not limit.is_open("a", 110.4)
    assert limit.is_open("a", 110.5)
    assert limit.take("a", 110.5) == 1


def test_keys_have_limits_of_their_own() -> None:
    limit = RateLimit(1, 10.0)
    assert [limit.take(key, 100.0) for key in "aab"] == [1, 2, 1]


def test_a_key_is_forgotten_once_its_interval_is_over_and_another_begins() -> None:
    class Key:
        pass

    limit, key = RateLimit(1, 10.0), Key()
    limit.take(key, 100.0)
    gone = weakref.ref(key)
    del key
    gc.collect()
    assert gone() is not None
    limit.take("b", 110.0)
    gc.collect()
    assert gone() is None


def test_a_key_can_be_forgotten_at_once() -> None:
    limit = RateLimit(1, 10.0)
    limit.take("a", 100.0)
    limit.forget("a")
    limit.forget("never asked")
    assert limit.is_open("a", 100.0)


def test_complaints_of_all_kinds_share_one_limit_and_the_last_says_so() -> None:
    now = 100.7
    lines: list[tuple[str, object]] = []
    reports = Reports(Counters(), lambda: now, lambda level, event, **fields: lines.append((event, fields.get("note"))))
    for number in range(WARNINGS_PER_SECOND + 5):
        reports.log_limited(f"complaint {number}")
    assert [event for event, _ in lines] == [f"complaint {number}" for number in range(WARNINGS_PER_SECOND)]
    assert [note for _, note in lines[:-1]] == [None] * (WARNINGS_PER_SECOND - 1)
    assert lines[-1][1] == "more of these in this second are not shown"
    now += 1.0
    reports.log_limited("later")
    assert lines[-1] == ("later", None)
