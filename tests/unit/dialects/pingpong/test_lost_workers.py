"""PingPong workers that fall silent or vanish: R8, R9, R40, R41."""

from __future__ import annotations

import pytest

from dragoman.dialects.pingpong.editions import Edition

from .world import DISCONNECT, EXIT, PING, PONG, READY, World, both, error


def test_r40_an_idle_worker_not_heard_of_for_worker_expire_is_forgotten_without_exit() -> None:
    """Timers, worker_expire; Frames, row EXIT: expiry never sends EXIT."""
    world = World(worker_expire=3)
    worker = world.ready_worker()
    world.wait(2.9)
    assert world.state(worker) == "idle"
    world.wait(0.2)
    assert world.state(worker) == "unknown"
    assert worker.told() == []
    assert worker.closed is None
    assert world.counters.expired_workers == 1


def test_a_forgotten_worker_joins_again_with_its_next_ping() -> None:
    world = World(worker_expire=3)
    worker = world.ready_worker()
    world.wait(4)
    assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "idle"


@pytest.mark.parametrize("word", [READY, PING, PONG, EXIT, b"some result"])
def test_any_message_restarts_worker_expire(word: bytes) -> None:
    """Timers, worker_expire: any message restarts it."""
    world = World(worker_expire=3)
    worker = world.ready_worker()
    world.wait(2)
    world.tell(worker, word)
    world.wait(2)
    assert world.state(worker) == "idle"


def test_worker_expire_counts_from_the_result_not_from_the_job() -> None:
    world = World(worker_expire=3)
    worker, _ = world.busy_worker()
    world.wait(10)
    world.tell(worker, b"result")
    world.wait(2.9)
    assert world.state(worker) == "idle"
    world.wait(0.2)
    assert world.state(worker) == "unknown"


def test_r40_an_idle_workers_connection_end_is_noticed_at_once_and_costs_no_job() -> None:
    world = World()
    worker = world.ready_worker()
    world.lose(worker)
    assert not world.broker.worker_registry.workers
    caller = world.call(b"job")
    other = world.worker()
    assert [b"job"] in world.tell(other, READY)
    world.tell(other, b"done")
    assert caller.told() == [[b"done"]]


@both
def test_r41_a_worker_that_dies_busy_ends_its_job_lost_at_once(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    world.lose(worker)
    assert caller.told() == error("lost: its worker's connection ended")


def test_seed_000_a_busy_worker_may_be_silent_for_longer_than_worker_expire() -> None:
    """The first text, Notes; Timers, job_timeout: a busy worker is silent in this dialect."""
    world = World(worker_expire=3, job_timeout=0)
    worker, caller = world.busy_worker()
    world.wait(600)
    world.tell(worker, b"result")
    assert caller.told() == [[b"result"]]


def test_r9_d8_with_attempts_left_a_lost_job_goes_to_another_worker() -> None:
    world = World(attempts=2)
    worker, caller = world.busy_worker(b"job")
    other = world.ready_worker()
    world.lose(worker)
    assert caller.told() == []
    world.wait(0.2)
    assert other.told() == [[b"job"]]
    world.lose(other)
    assert caller.told() == error("lost: its worker's connection ended")


def test_r8_d8_a_job_whose_bytes_never_left_goes_to_another_worker_at_once_and_spends_nothing() -> None:
    world = World()
    worker = world.ready_worker()
    worker.stop_reading()
    caller = world.call(b"job")
    world.lose(worker)
    assert caller.told() == []
    assert world.job().spent == 0
    other = world.worker()
    assert [b"job"] in world.tell(other, READY)
    world.tell(other, b"done")
    assert caller.told() == [[b"done"]]


def test_r8_a_worker_that_vanishes_in_the_turn_it_is_chosen_cannot_have_seen_the_job() -> None:
    """The job's frames are written at the end of a turn: a connection that ends before has taken none of them."""
    world = World()
    worker = world.ready_worker()
    other = world.ready_worker()
    caller = world.caller()
    world.receive(caller, [b"", b"job"])
    world.lose(worker)
    assert caller.told() == []
    assert other.told() == [[b"job"]]
    world.tell(other, b"done")
    assert caller.told() == [[b"done"]]


def test_r8_a_worker_taken_over_in_the_turn_it_is_chosen_cannot_have_seen_the_job() -> None:
    world = World()
    world.ready_worker(b"w1")
    caller = world.caller()
    world.receive(caller, [b"", b"job"])
    fresh = world.worker_in_this_turn(b"w1")
    assert caller.told() == []
    assert [b"job"] in world.tell(fresh, READY)


def test_r8_disconnect_behind_the_last_result_does_not_cost_the_next_job() -> None:
    """Both come in one read. The next job was chosen for it in between, but has not been sent."""
    world = World()
    worker, first = world.busy_worker(b"1")
    second = world.call(b"2")
    world.receive(worker, [b"", b"one"])
    world.receive(worker, [b"", DISCONNECT])
    world.settle()
    assert first.told() == [[b"one"]]
    assert second.told() == []
    assert [b"2"] not in worker.told()
    other = world.worker()
    assert [b"2"] in world.tell(other, READY)


def test_a_job_that_ends_in_the_turn_it_is_chosen_is_not_sent_and_its_worker_stays_free() -> None:
    world = World()
    worker = world.ready_worker()
    caller = world.caller()
    world.receive(caller, [b"", b"job"])
    world.broker.withdraw(world.job(), world.now)
    world.settle()
    assert caller.told() == error("cancelled: withdrawn")
    assert worker.told() == []
    assert world.state(worker) == "idle"
