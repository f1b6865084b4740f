"""Leases of Powerhose workers, and pauses of the broker: D5, D13."""

from __future__ import annotations

from .world import (
    GIVE,
    PONG,
    WAKE,
    World,
)


def test_d5_an_idle_worker_that_does_not_ping_is_removed_after_15_seconds() -> None:
    world = World()
    bench = world.worker()
    world.wait(14.9)
    assert bench.state == "idle"
    world.wait(0.1)
    assert bench.state == "away"
    assert bench.end.is_over
    assert world.counters.expired_workers == 1
    (line,) = world.remarked("worker left")
    assert "silent for 15 s" in line["reason"]


def test_pings_extend_the_lease() -> None:
    world = World()
    bench = world.worker()
    world.wait_pinging(120, bench, every=5)
    assert bench.state == "idle"
    assert len(bench.lives) == 1


def test_d5_a_busy_worker_needs_no_ping() -> None:
    world = World()
    bench, caller = world.busy()
    world.wait(59)
    assert bench.state == "working"
    bench.finish()
    assert caller.told() == [b"result"]


def test_a_jobres_restarts_the_lease() -> None:
    world = World()
    bench, _ = world.busy()
    world.wait(40)
    bench.finish()
    world.wait(14.9)
    assert bench.state == "idle"
    world.wait(0.2)
    assert bench.state == "away"


def test_a_give_restarts_the_lease() -> None:
    world = World(wake_timeout=10)
    bench = world.worker()
    world.wait(14)
    world.call()
    assert bench.told() == [WAKE]
    world.wait(5)
    bench.say(GIVE)
    world.withdraw()
    assert bench.state == "working, stuck"
    (worker,) = world.broker.worker_registry.workers.values()
    assert worker.seen == world.now


def test_a_ping_from_a_worker_that_expired_registers_it_again() -> None:
    world = World()
    bench = world.worker()
    world.wait(20)
    assert bench.ping() == [PONG]
    assert bench.state == "idle"


def test_d13_our_own_pause_expires_nobody() -> None:
    world = World()
    bench = world.worker()
    world.late(60)
    assert bench.state == "idle"
    assert world.counters.expired_workers == 0


def test_d13_a_give_that_lay_unread_while_we_were_paused_is_in_time() -> None:
    world = World(attempts=1)
    bench, caller = world.asked()
    bench.end.stream.read_dry = lambda: bench.end.receive(b"", GIVE)  # type: ignore[method-assign]
    world.late(5)
    del bench.end.stream.read_dry
    bench.job_id = bench.told()[0].split(b":::")[1]
    bench.finish()
    assert caller.told() == [b"result"]
    assert bench.post.retry_delay == 0
