from __future__ import annotations

from dragoman.dialects.heartbeats import HeartbeatTimers


def test_a_heartbeat_is_due_after_an_interval_without_a_message() -> None:
    timers = HeartbeatTimers(2.0, 5.0)
    timers.restart(100.0)
    assert not timers.is_due(101.9)
    assert timers.is_due(102.0)
    timers.sent_at = 102.0
    assert not timers.is_due(103.9)
    assert timers.next_due() == 104.0


def test_a_broker_is_silent_at_its_timeout_and_not_before() -> None:
    timers = HeartbeatTimers(2.0, 5.0)
    timers.restart(100.0)
    timers.sent_at = 104.0
    assert not timers.is_silent(104.9)
    assert timers.is_silent(105.0)
    assert timers.next_due() == 105.0
    assert timers.next_due(expects=False) == 106.0
    timers.received_at = 104.9
    assert not timers.is_silent(105.0)
    assert timers.silence == "nothing received from the broker for 5 s"


def test_new_times_apply_from_then_on() -> None:
    timers = HeartbeatTimers(2.0, 5.0)
    timers.restart(100.0)
    timers.set_times(0.5, 1.5)
    assert (timers.is_due(100.5), timers.is_silent(101.4), timers.is_silent(101.5)) == (True, False, True)


def test_a_tick_at_the_returned_time_finds_it_due() -> None:
    """PingPong's worker compared `now - received_at` with its time-out. The difference of two floats may be less than
    what was added, so a tick at the returned time found nothing due and returned the same time again."""
    for started in range(1, 2000):
        timers = HeartbeatTimers(2.2, 6.6)
        timers.restart(started / 10)
        assert timers.is_due(timers.next_due())
        timers.sent_at = started / 10 + 1000
        assert timers.is_silent(timers.next_due())
