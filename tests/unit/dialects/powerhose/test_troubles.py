"""Many Powerhose workers at once, and any two failures in a row."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from case_tables import check_every_row

from .world import (
    FIRST,
    GIVE,
    PONG,
    WAKE,
    Bench,
    Caller,
    World,
)


@pytest.mark.parametrize("seed", range(5))
def test_many_workers_and_callers_each_get_their_own(seed: int) -> None:
    """I7, by hand: every result is of the caller's own job."""
    world = World()
    benches = [world.worker(f"tcp://192.0.2.1:{9000 + number}") for number in range(5)]
    callers = [world.caller() for _ in range(20)]
    for number, caller in enumerate(callers):
        caller.call(b"%d" % number)
    step = seed
    while world.present:
        step += 1
        bench = benches[step * 7 % 5]
        for word in bench.told():
            if word == WAKE:
                bench.say(GIVE)
            else:
                _, bench.job_id, data = word.split(b":::", 2)
                bench.finish(b"did " + data)
    assert [caller.told() for caller in callers] == [[b"did %d" % number] for number in range(20)]


TROUBLES: dict[str, Callable[[World, Bench, Caller], object]] = {
    "death": lambda world, bench, caller: bench.die(),
    "remove": lambda world, bench, caller: bench.remove(),
    "ping": lambda world, bench, caller: bench.ping(),
    "cancel": lambda world, bench, caller: world.withdraw() if world.present else None,
    "caller gone": lambda world, bench, caller: None if caller.end.is_over else caller.end.cut(),
    "drain": lambda world, bench, caller: world.drain(),
    "wake time": lambda world, bench, caller: world.wait(1),
    "run time": lambda world, bench, caller: world.wait(5),
    "give": lambda world, bench, caller: None if bench.end.is_over else bench.say(GIVE),
    "result": lambda world, bench, caller: None if bench.end.is_over else bench.finish(),
    "garbage": lambda world, bench, caller: None if bench.end.is_over else bench.say(b"?"),
}


@pytest.mark.parametrize("stage", ["asked", "busy"])
def test_any_two_troubles_one_after_the_other_leave_everything_in_order(stage: str) -> None:
    """The world checks all records after each; every caller that stayed receives one outcome."""

    def check(first: str, second: str) -> None:
        world = World(stuck_timeout=10, job_timeout=5)
        bench, caller = getattr(world, stage)()
        for trouble in (first, second):
            if not bench.registrant.is_over:
                TROUBLES[trouble](world, bench, caller)
        world.wait(30)
        assert world.present == 0
        assert len(caller.told()) <= 1
        assert caller.end.is_over or sum(world.counters.ended.values()) == 1
        world.places[FIRST] = "open"
        if not world.broker.dispatch.is_draining:
            assert bench.ping() == [PONG]
            assert bench.state == "idle"
            last = world.call(b"last")
            assert bench.work() == b"last"
            assert last.told() == [b"result"]

    check_every_row(check, product(TROUBLES, repeat=2))
