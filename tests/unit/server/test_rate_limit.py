from __future__ import annotations

import gc
import weakref

from dragoman.server.rate_limit import RateLimit


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
