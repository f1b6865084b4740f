"""DISCONNECT from PingPong workers, and EXIT to them: R46."""

from __future__ import annotations

from dragoman.dialects.pingpong.editions import Edition
from dragoman.dialects.pingpong.remote_workers import EXITS

from .world import (
    DISCONNECT,
    EXIT,
    PACKAGE,
    PING,
    PONG,
    READY,
    Side,
    World,
    both,
    error,
    finish,
)

# -------------------------------------------------------------------- DISCONNECT


@both
def test_disconnect_from_an_idle_worker_means_leaving_and_is_not_answered(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.ready_worker()
    assert world.tell(worker, DISCONNECT) == []
    assert world.state(worker) == "unknown"
    world.call()
    assert worker.told() == []


def test_in_plain_disconnect_from_a_busy_worker_is_its_result() -> None:
    world = World()
    worker, caller = world.busy_worker()
    assert world.tell(worker, DISCONNECT) == [[PONG]]
    assert caller.told() == [[DISCONNECT]]
    assert world.state(worker) == "idle"


def test_in_package_disconnect_from_a_busy_worker_loses_its_job() -> None:
    world = World(edition=PACKAGE)
    worker, caller = world.busy_worker()
    assert world.tell(worker, DISCONNECT) == []
    assert caller.told() == error("lost: its worker sent DISCONNECT")
    assert world.state(worker) == "unknown"


@both
def test_a_worker_that_disconnected_may_come_back_on_the_same_connection(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.ready_worker()
    world.tell(worker, DISCONNECT)
    assert world.tell(worker, READY) == [[PONG]]
    assert world.state(worker) == "idle"


# -------------------------------------------------------------------- EXIT: R46


def drain(world: World, worker: Side, *, at_once: bool = False) -> None:
    found = world.worker_of(worker)
    assert found is not None
    world.broker.availability.drain(found, world.now, at_once=at_once)
    world.settle()


@both
def test_r46_draining_an_idle_worker_says_exit_at_once(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.ready_worker()
    drain(world, worker)
    assert worker.told() == [[EXIT]]
    world.call()
    assert worker.told() == []
    world.lose(worker)


@both
def test_r46_draining_a_busy_worker_says_exit_once_it_is_idle(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    waiting = world.call(b"next")
    drain(world, worker)
    assert worker.told() == []
    world.wait(1)
    assert world.tell(worker, PING) == [[PONG]]
    assert finish(world, worker, b"result") == [[PONG], [EXIT]]
    assert caller.told() == [[b"result"]]
    assert waiting.told() == []


@both
def test_r46_killing_a_busy_worker_says_exit_at_once_and_loses_its_job(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    drain(world, worker, at_once=True)
    assert worker.told() == [[EXIT]]
    assert caller.told() == error("lost: its worker was killed by an operator")


def test_r46_a_worker_that_goes_in_the_turn_it_is_killed_is_told_nothing() -> None:
    world = World()
    worker, caller = world.busy_worker()
    found = world.worker_of(worker)
    assert found is not None
    world.broker.availability.drain(found, world.now, at_once=True)
    world.lose(worker)
    assert worker.told() == []
    assert caller.told() == error("lost: its worker was killed by an operator")


def test_d8_a_killed_workers_job_goes_to_another_while_attempts_remain() -> None:
    world = World(attempts=2)
    worker, caller = world.busy_worker(b"job")
    other = world.ready_worker()
    drain(world, worker, at_once=True)
    world.wait(0.2)
    assert other.told() == [[b"job"]]
    world.tell(other, b"done")
    assert caller.told() == [[b"done"]]


def test_r46_a_killed_workers_result_is_late() -> None:
    world = World()
    worker, caller = world.busy_worker()
    drain(world, worker, at_once=True)
    caller.told()
    world.tell(worker, b"too late")
    assert caller.told() == []
    assert world.counters.late_results == 1
    assert world.state(worker) == "exiting"


@both
def test_r46_a_worker_that_ignores_exit_hears_it_three_times_and_is_then_closed(edition: Edition) -> None:
    world = World(edition=edition)
    worker = world.ready_worker()
    drain(world, worker)
    heard = worker.told()
    for _ in range(EXITS - 1):
        world.wait(1)
        heard += world.tell(worker, PING)
    assert heard == [[EXIT]] * 3
    assert worker.closed is None
    world.wait(1)
    assert world.tell(worker, PING) == []
    assert worker.closed is not None


def test_r46_after_exit_ready_does_not_bring_it_back() -> None:
    world = World()
    worker = world.ready_worker()
    drain(world, worker)
    worker.told()
    world.wait(1)
    assert world.tell(worker, READY) == [[EXIT]]
    world.call(b"job")
    assert worker.told() == []


def test_r46_exits_are_a_second_apart_so_that_pings_under_way_do_not_close_the_connection() -> None:
    """R46: at most 3 times, 1 s apart. PINGs that crossed the first EXIT are no sign that it was ignored."""
    world = World()
    worker = world.ready_worker()
    drain(world, worker)
    for _ in range(5):
        world.wait(0.1)
        world.tell(worker, PING)
    assert worker.closed is None


def test_r46_an_stuck_worker_is_told_to_exit_once_it_proves_free() -> None:
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    drain(world, worker)
    assert worker.told() == []
    assert world.tell(worker, b"late") == [[PONG], [EXIT]]
