from __future__ import annotations

from dragoman.dialects.heartbeats import HeartbeatTimers


def test_a_heartbeat_is_due_after_a_period_without_a_word_of_ours() -> None:
    signs = HeartbeatTimers(2.0, 5.0)
    signs.begin(100.0)
    assert not signs.is_due(101.9)
    assert signs.is_due(102.0)
    signs.said = 102.0
    assert not signs.is_due(103.9)
    assert signs.next_due() == 104.0


def test_a_broker_is_silent_once_patience_is_over_and_not_before() -> None:
    signs = HeartbeatTimers(2.0, 5.0)
    signs.begin(100.0)
    signs.said = 104.0
    assert not signs.is_silent(104.9)
    assert signs.is_silent(105.0)
    assert signs.next_due() == 105.0
    assert signs.next_due(expects=False) == 106.0
    signs.heard = 104.9
    assert not signs.is_silent(105.0)
    assert signs.silence == "nothing heard from the broker for 5 s"


def test_what_the_broker_wants_holds_from_then_on() -> None:
    signs = HeartbeatTimers(2.0, 5.0)
    signs.begin(100.0)
    signs.agree(0.5, 1.5)
    assert (signs.is_due(100.5), signs.is_silent(101.4), signs.is_silent(101.5)) == (True, False, True)


def test_a_tick_at_the_instant_that_was_named_finds_it_due() -> None:
    """PingPong's worker compared `now - heard` with its patience. The difference of two floats may be less than what
    was added, so a tick at the named instant found nothing due and named the same instant again."""
    for begun in range(1, 2000):
        signs = HeartbeatTimers(2.2, 6.6)
        signs.begin(begun / 10)
        assert signs.is_due(signs.next_due())
        signs.said = begun / 10 + 1000
        assert signs.is_silent(signs.next_due())
