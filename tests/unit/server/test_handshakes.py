"""Limits on handshakes: a second, and at once (R168)."""

from __future__ import annotations

from dragoman.core.infinity import inf
from dragoman.server.handshakes import Handshakes


class Clock:
    def __init__(self, now: float = 10.25) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def nobody(*rejected: str) -> None:
    raise AssertionError(rejected)


def test_handshakes_of_a_second() -> None:
    clock = Clock()
    handshakes = Handshakes(2, 100, clock, nobody)
    for moment in (10.25, 10.5):
        clock.now = moment
        assert handshakes.wait_time() == 0.0
        handshakes.begin("here")
        handshakes.end("tls", "here", is_done=True)
    assert handshakes.wait_time() == 0.5
    clock.now = 11.0
    assert handshakes.wait_time() == 0.0


def test_handshakes_of_a_second_are_spread_over_it() -> None:
    """With the default of 200 a second, 5 begin at once: they take 5 ms at most, and heartbeats are not late."""
    clock = Clock(10.0)
    handshakes = Handshakes(200, 1_000, clock, nobody)
    begun = []
    while clock.now < 11.0:
        while not (seconds := handshakes.wait_time()):
            handshakes.begin("here")
            begun.append(clock.now)
        clock.now += seconds + 1e-9
    assert max(begun.count(moment) for moment in begun) == 5
    assert len(begun) == 200


def test_handshakes_at_once() -> None:
    """The one that waits continues when any of the others has ended, done or failed."""
    handshakes = Handshakes(100, 2, Clock(), nobody)
    resumed: list[str] = []
    handshakes.begin("here")
    handshakes.begin("here")
    assert handshakes.wait_time() == inf
    handshakes.when_one_ends(lambda: resumed.append("a"))
    assert resumed == []
    handshakes.end("curve", "here", is_done=False)
    assert (resumed, handshakes.in_progress, handshakes.wait_time()) == (["a"], 1, 0.0)
    handshakes.end("tls", "here", is_done=True)
    assert resumed == ["a"]  # called once
    assert handshakes.totals == {("curve", "failed"): 1, ("tls", "done"): 1}


def test_one_address_has_a_quarter_of_the_handshakes_in_progress() -> None:
    rejected: list[tuple[str, ...]] = []
    handshakes = Handshakes(10_000, 256, Clock(), lambda *each: rejected.append(each))
    begun = 0
    while handshakes.admits("tls", "flood"):
        handshakes.begin("flood")
        begun += 1
    reason = "64 handshakes of this address are in progress, the maximum (a quarter of max_unauthenticated)"
    assert rejected == [("tls", "flood", reason)]
    assert (begun, handshakes.wait_time(), handshakes.admits("tls", "another")) == (64, 0.0, True)
    handshakes.end("curve", "flood", is_done=False)
    assert handshakes.admits("tls", "flood")
    for _ in range(63):
        handshakes.end("curve", "flood", is_done=False)
    assert (handshakes.in_progress, handshakes._by_address) == (0, {})
