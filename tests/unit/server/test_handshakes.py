"""Limits on handshakes: a second, and at once (R168)."""

from __future__ import annotations

from dragoman.core.infinity import inf
from dragoman.server.handshakes import Handshakes


class Clock:
    def __init__(self) -> None:
        self.now = 10.25

    def __call__(self) -> float:
        return self.now


def test_handshakes_of_a_second() -> None:
    clock = Clock()
    handshakes = Handshakes(2, 100, clock)
    for _ in range(2):
        assert handshakes.wait_time() == 0.0
        handshakes.begin("here")
        handshakes.end("tls", "here", is_done=True)
    assert handshakes.wait_time() == 0.75
    clock.now = 11.0
    assert handshakes.wait_time() == 0.0


def test_handshakes_at_once() -> None:
    """The one that waits continues when any of the others has ended, done or failed."""
    handshakes = Handshakes(100, 2, Clock())
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
    handshakes = Handshakes(1_000, 256, Clock())
    begun = 0
    while handshakes.admits("flood"):
        handshakes.begin("flood")
        begun += 1
    assert (begun, handshakes.wait_time(), handshakes.admits("another")) == (64, 0.0, True)
    handshakes.end("curve", "flood", is_done=False)
    assert handshakes.admits("flood")
    for _ in range(63):
        handshakes.end("curve", "flood", is_done=False)
    assert (handshakes.in_progress, handshakes._by_address) == (0, {})
