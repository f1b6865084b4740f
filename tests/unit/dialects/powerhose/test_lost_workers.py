"""Powerhose workers that die or do not reply in time: R57."""

from __future__ import annotations

from dragoman.core.options import JobOptions

from .world import (
    FIRST,
    PONG,
    REMOVE,
    SECOND,
    THIRD,
    WAKE,
    World,
    fields,
)

# -------------------------------------------------------------------- a worker dies


def test_a_worker_that_dies_while_idle_is_off_the_list_at_once() -> None:
    world = World()
    first, second = world.worker(), world.worker(SECOND)
    first.die()
    assert first.state == "away"
    caller = world.call()
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_a_worker_that_dies_before_give_has_not_seen_the_job() -> None:
    world = World(attempts=1)
    first, caller = world.asked()
    second = world.worker(SECOND)
    first.die()
    assert world.job().spent == 0
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_a_worker_that_dies_between_give_and_jobres_costs_an_attempt() -> None:
    world = World()
    first, caller = world.busy()
    second = world.worker(SECOND)
    first.die()
    assert world.job().spent == 1
    assert [ending.reason for ending in world.job().history or ()] == ["its worker's connection ended"]
    world.wait(0.2)
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_a_worker_that_dies_in_the_turn_in_which_it_is_chosen_has_not_seen_the_job() -> None:
    world = World(attempts=1)
    first, second = world.worker(), world.worker(SECOND)
    caller = world.caller()
    caller.end.receive(b"", b"job")
    assert first.end.peer is not None
    world.connections.ended(first.end.peer, "reset")
    world.run_once()
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_a_worker_that_says_remove_in_the_turn_in_which_it_is_chosen_has_not_seen_the_job() -> None:
    world = World(attempts=1)
    first, second = world.worker(), world.worker(SECOND)
    caller = world.caller()
    caller.end.receive(b"", b"job")
    first.registrant.receive(b"", fields(REMOVE, FIRST))
    world.run_once()
    assert first.told() == []
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


def test_d3_a_worker_that_comes_back_with_the_same_endpoint_is_a_new_life() -> None:
    world = World()
    bench, caller = world.busy()
    (before,) = world.broker.worker_registry.workers
    bench.end.cut()
    assert bench.ping() == [PONG]
    (after,) = world.broker.worker_registry.workers
    assert after != before
    assert len(bench.lives) == 2
    world.wait(0.2)
    assert bench.work(b"again") == b"job"
    assert caller.told() == [b"again"]


def test_d12_a_frozen_worker_with_a_job_is_lost_after_15_seconds() -> None:
    world = World()
    first, caller = world.busy()
    second = world.worker(SECOND)
    first.end.is_frozen = True
    world.wait_pinging(15.2, second)
    assert first.state == "away"
    world.wait(0.2)
    assert second.work() == b"job"
    assert caller.told() == [b"result"]


# -------------------------------------------------------------------- R57: laggy workers


def test_r57_no_jobres_in_time_removes_the_worker_closes_its_connection_and_asks_another() -> None:
    world = World(job_timeout=10)
    first, caller = world.busy()
    second = world.worker(SECOND)
    world.wait_pinging(9.9, first, second, every=3.3)
    assert first.state == "working"
    world.wait(0.2)
    assert first.end.is_over
    assert first.state == "resting"
    assert caller.told() == []
    assert [ending.outcome for ending in world.job().history or ()] == ["timed out"]
    world.wait(1.3)
    assert second.work(b"second") == b"job"
    assert caller.told() == [b"second"]
    assert world.counters.late_results == 0


def test_r57_the_laggy_workers_next_ping_after_a_second_registers_it() -> None:
    world = World(job_timeout=5, attempts=1)
    bench, caller = world.busy()
    world.wait(5)
    assert caller.ending() == "timed out"
    world.wait(0.9)
    assert bench.ping() == [PONG]
    assert bench.state == "resting"
    world.wait(0.1)
    assert bench.ping() == [PONG]
    assert bench.state == "idle"


def test_r57_while_it_is_still_at_it_the_back_off_goes_on_from_there() -> None:
    world = World(job_timeout=5, attempts=1)
    bench, _ = world.busy()
    world.wait(6)
    bench.ping()
    world.call(b"next")
    assert bench.told() == [WAKE]
    world.wait(1)
    assert bench.post.retry_delay == 2


def test_r12_the_next_attempt_goes_to_a_worker_that_has_not_had_the_job() -> None:
    world = World()
    first, caller = world.busy()
    second = world.worker(SECOND)
    first.end.cut()
    first.ping()
    assert first.state == "idle"
    world.wait(0.2)
    assert second.accept() == b"job"
    second.die()
    assert first.accept(within=2.5) == b"job"
    first.finish(b"third time")
    assert caller.told() == [b"third time"]


def test_r9_three_attempts_by_default_then_the_caller_is_told() -> None:
    world = World(job_timeout=5)
    caller = world.call()
    for endpoint in (FIRST, SECOND, THIRD):
        bench = world.worker(endpoint)
        assert bench.accept(within=2.5) == b"job"
        assert caller.told() == []
        world.wait(5)
    assert caller.told() == [b"timed out: no result within 5 s"]
    assert world.ended == {"timed out": 1}
    assert world.counters.dispatched == 3


def test_r10_three_deaths_end_a_job_however_many_attempts_it_has() -> None:
    world = World(attempts=100)
    caller = world.caller()
    bench = world.worker()
    caller.call(b"poison")
    for _ in range(3):
        assert bench.accept() == b"poison"
        bench.end.cut()
        bench.ping()
        world.wait_pinging(3, bench)
    assert caller.ending() == "lost"


def test_attempts_of_the_url_win() -> None:
    world = World(attempts=1, job_timeout=5)
    _, caller = world.busy()
    world.worker(SECOND)
    world.wait(5)
    assert caller.ending() == "timed out"


def test_without_a_job_timeout_nobody_is_laggy() -> None:
    world = World(job_timeout=0)
    bench, caller = world.busy()
    world.wait_pinging(5_000, bench, every=500)
    bench.finish()
    assert caller.told() == [b"result"]


def test_a_jobs_own_deadline_that_passes_while_it_runs_removes_the_laggy_worker_too() -> None:
    world = World()
    bench = world.worker()
    caller = world.caller()
    assert caller.end.peer is not None
    job_options = JobOptions(waits=True, queue_timeout=10, job_timeout=60)
    world.broker.submit("default", b"job", caller.end.peer, job_options, world.now, deadline=world.now + 5)
    world.run_once()
    bench.accept()
    world.wait(5)
    assert caller.ending() == "timed out"
    assert bench.end.is_over
    assert bench.state == "resting"
