"""Cancelled Powerhose jobs, and callers that leave: R18, R19."""

from __future__ import annotations

from .world import (
    GIVE,
    World,
)


def test_cancel_while_it_is_asked_sends_no_job_and_give_frees_the_worker() -> None:
    world = World()
    bench, caller = world.asked()
    world.withdraw()
    assert caller.ending() == "cancelled"
    assert bench.state == "waking, stuck"
    waiting = world.call(b"next")
    assert bench.told() == []
    bench.say(GIVE)
    assert bench.work() == b"next"
    assert waiting.told() == [b"result"]
    assert world.counters.late_results == 0


def test_cancel_while_it_is_asked_and_no_give_comes() -> None:
    world = World()
    bench, _ = world.asked()
    world.withdraw()
    world.wait(1)
    assert bench.state == "resting"
    assert world.workers == 0


def test_cancel_while_it_works_leaves_the_worker_stuck_until_its_result() -> None:
    """D11: it may finish the job; its result is dropped."""
    world = World()
    bench, caller = world.busy()
    world.withdraw()
    assert caller.ending() == "cancelled"
    assert bench.state == "working, stuck"
    waiting = world.call(b"next")
    assert bench.told() == []
    bench.finish(b"late")
    assert world.counters.late_results == 1
    assert caller.told() == []
    assert bench.work(b"new") == b"next"
    assert waiting.told() == [b"new"]


def test_a_cancelled_worker_that_never_answers_is_let_go_in_the_end() -> None:
    world = World(stuck_timeout=100)
    bench, _ = world.busy()
    world.withdraw()
    world.wait_pinging(99, bench, every=3)
    assert bench.state == "working, stuck"
    world.wait(1)
    assert bench.state == "away"
    assert bench.end.is_over


def test_cancel_in_the_turn_in_which_it_is_chosen_leaves_the_worker_idle() -> None:
    world = World()
    bench = world.worker()
    caller = world.caller()
    caller.end.receive(b"", b"job")
    world.withdraw()
    assert bench.told() == []
    assert bench.state == "idle"
    assert caller.ending() == "cancelled"


def test_r18_a_caller_that_goes_while_a_worker_is_only_asked_leaves_no_work_behind() -> None:
    world = World()
    bench, caller = world.asked()
    caller.end.cut()
    bench.say(GIVE)
    assert bench.told() == []
    assert bench.state == "idle"
    assert world.ended == {"cancelled": 1}


def test_r18_a_caller_that_goes_while_its_job_waits_withdraws_it() -> None:
    world = World()
    caller = world.call()
    caller.end.cut()
    assert world.ended == {"cancelled": 1}


def test_r19_a_caller_that_goes_while_its_job_runs_leaves_the_result_unclaimed() -> None:
    world = World()
    bench, caller = world.busy()
    caller.end.cut()
    bench.finish()
    assert world.counters.unclaimed_results == 1
    assert bench.state == "idle"
