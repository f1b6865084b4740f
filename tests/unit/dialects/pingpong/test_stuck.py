"""Stuck PingPong workers, whose attempt has ended without their result: R7, R36, R42."""

from __future__ import annotations

import pytest

from dragoman.carriers.carrier import TooLarge
from dragoman.dialects.pingpong.editions import Edition

from .world import PACKAGE, PING, PLAIN, PONG, READY, World, both, error, finish


@both
def test_r42_r7_a_job_slower_than_job_timeout_ends_timed_out_and_its_worker_is_stuck(edition: Edition) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, caller = world.busy_worker()
    world.wait(4.9)
    assert caller.told() == []
    world.wait(0.2)
    assert caller.told() == error("timed out: no result within 5 s")
    assert world.state(worker) == "stuck"
    world.call(b"next")
    assert worker.told() == []


@both
def test_r36_its_late_result_is_dropped_and_proves_it_free(edition: Edition) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, caller = world.busy_worker()
    world.wait(6)
    caller.told()
    assert finish(world, worker, b"at last") == [[PONG]]
    assert caller.told() == []
    assert world.counters.late_results == 1
    assert world.state(worker) == "idle"


def test_r36_ready_proves_it_free() -> None:
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    assert world.tell(worker, READY) == [[PONG]]
    assert world.state(worker) == "idle"
    assert world.counters.ready_while_busy == 0


def test_r36_in_package_ready_proves_nothing_and_is_answered_like_a_ping() -> None:
    """A worker that repeats READY while it works is not free. Otherwise its next job waits behind the one that it still
    runs."""
    world = World(edition=PACKAGE, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait_pinging(worker, 6)
    next_caller = world.call(b"next")
    assert world.tell(worker, READY) == [[PONG]]
    assert world.state(worker) == "stuck"
    assert finish(world, worker, b"late")[-1][0] == b"next"
    finish(world, worker, b"result")
    assert next_caller.told() == [[b"result"]]


def test_r36_in_package_one_that_was_silent_comes_back_on_a_new_connection() -> None:
    world = World(edition=PACKAGE, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    assert world.tell(worker, READY) == []
    world.lose(worker)
    assert world.state(world.ready_worker()) == "idle"


@both
def test_r36_its_connections_end_frees_it(edition: Edition) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    world.lose(worker)
    assert not world.broker.worker_registry.workers


@pytest.mark.parametrize(
    ("edition", "proof"),
    [(PLAIN, "result"), (PLAIN, "READY"), (PLAIN, "too large"), (PACKAGE, "result"), (PACKAGE, "too large")],
)
def test_r36_once_proven_it_is_given_the_job_that_waited_meanwhile(edition: Edition, proof: str) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    caller = world.call(b"next")
    if proof == "result":
        told = finish(world, worker, b"late")
    elif proof == "READY":
        told = world.tell(worker, READY)
    else:
        told = world.raw(worker, TooLarge([b""], 5_000))
    assert told[-1][0] == b"next"
    finish(world, worker, b"done")
    assert caller.told() == [[b"done"]]


def test_r36_once_proven_its_lease_counts_again() -> None:
    world = World(job_timeout=5, worker_expire=3)
    worker, _ = world.busy_worker()
    world.wait(6)
    world.tell(worker, READY)
    world.wait(3.1)
    assert world.state(worker) == "unknown"


@both
def test_r36_one_that_fell_silent_and_pings_again_gets_no_pong_and_comes_back_with_ready(edition: Edition) -> None:
    """A PING never frees it; unanswered, it reconnects by its document's own rule and says READY."""
    world = World(edition=edition, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    for _ in range(3):
        assert world.tell(worker, PING) == []
        assert world.tell(worker, PING, b"1") == []
        world.wait(1)
    assert world.state(worker) == "stuck"
    world.lose(worker)
    again = world.ready_worker()
    world.call(b"next")
    assert again.told()[0][0] == b"next"


@both
def test_r36_one_that_pinged_all_along_is_threaded_and_keeps_its_pong(edition: Edition) -> None:
    world = World(edition=edition, job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait_pinging(worker, 6)
    assert world.state(worker) == "stuck"
    for _ in range(3):
        world.wait(1)
        assert world.tell(worker, PING) == [[PONG]]
    assert world.state(worker) == "stuck"
    finish(world, worker, b"old")
    assert world.state(worker) == "idle"


def test_r36_silence_is_more_than_two_ping_periods_and_the_period_is_an_option() -> None:
    world = World(job_timeout=5, ping_every=2)
    worker, _ = world.busy_worker()
    world.wait_pinging(worker, 8, every=4)
    world.wait(4)
    assert world.tell(worker, PING) == [[PONG]]  # 4 s is not more than 2 periods of 2 s
    world.wait(4.1)
    assert world.tell(worker, PING) == []


def test_r36_a_worker_silent_before_its_time_out_that_pings_again_is_back_in_its_loop() -> None:
    """While the attempt is current a PING is answered; once it has ended, no more."""
    world = World(job_timeout=10)
    worker, _ = world.busy_worker()
    world.wait(5)
    assert world.tell(worker, PING) == [[PONG]]
    world.wait_pinging(worker, 6)
    assert world.state(worker) == "stuck"
    assert world.tell(worker, PING) == []


def test_r36_a_new_job_begins_a_new_silence() -> None:
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    world.tell(worker, b"late")
    world.call(b"second")
    assert worker.told() == [[b"second"]]
    world.wait_pinging(worker, 6)
    world.wait(1)
    assert world.tell(worker, PING) == [[PONG]]


def test_d13_a_pause_of_our_own_is_not_the_workers_silence() -> None:
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait_pinging(worker, 2)
    world.now += 8  # we were stopped
    world.broker.extend_leases(8, world.now)
    world.tell(worker, PING)
    world.wait(1)
    assert world.state(worker) == "stuck"
    assert world.tell(worker, PING) == [[PONG]]


@both
def test_r36_after_stuck_limit_the_connection_is_closed(edition: Edition) -> None:
    """It must come on a new connection: a PING on the old one would make a worker idle that may still compute."""
    world = World(edition=edition, job_timeout=5, stuck_timeout=20)
    worker, _ = world.busy_worker()
    world.wait_pinging(worker, 24)
    assert world.state(worker) == "stuck"
    world.wait(2)
    assert worker.closed is not None
    assert not world.broker.worker_registry.workers


def test_r36_a_silent_stuck_worker_is_not_expired_by_worker_expire() -> None:
    world = World(job_timeout=5, worker_expire=3)
    worker, _ = world.busy_worker()
    world.wait(60)
    assert world.state(worker) == "stuck"


@both
def test_r36_a_cancelled_job_leaves_its_worker_stuck_and_tells_the_caller(edition: Edition) -> None:
    world = World(edition=edition)
    worker, caller = world.busy_worker()
    world.broker.withdraw(world.job(), world.now, "withdrawn by an operator")
    world.settle()
    assert caller.told() == error("cancelled: withdrawn by an operator")
    assert worker.told() == []  # this wire has no word for it
    assert world.state(worker) == "stuck"
    finish(world, worker, b"in vain")
    assert world.state(worker) == "idle"
    assert caller.told() == []


def test_r36_a_draining_stuck_worker_that_is_back_in_its_loop_gets_no_pong_either() -> None:
    """It would otherwise ping until stuck_timeout instead of coming again."""
    world = World(job_timeout=5)
    worker, _ = world.busy_worker()
    world.wait(6)
    drained = world.worker_of(worker)
    assert drained is not None
    world.broker.availability.drain(drained, world.now)
    world.settle()
    assert world.tell(worker, PING) == []
