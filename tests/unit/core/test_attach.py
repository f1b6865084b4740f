"""Detached workers that return, leave or are drained, and their jobs meanwhile."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.effects import CancelAttempt, DeliverOutcome, RemoveWorker, SendJob
from dragoman.core.states import JobState, Outcome, RemovalReason, WorkerState

from .detached_workers import away, away_busy, idle_lists
from .world import Caller, CheckedBroker, attempt_of

# -------------------------------------------------------------------- attach


@pytest.mark.parametrize(
    ("kind", "state"),
    [("idle", WorkerState.IDLE), ("busy", WorkerState.BUSY), ("stuck", WorkerState.STUCK)],
)
def test_attached_worker_is_what_it_was(broker: CheckedBroker, kind: str, state: WorkerState) -> None:
    """R64."""
    worker = broker.worker()
    if kind != "idle":
        attempt = broker.running(worker)
        if kind == "stuck":
            broker.withdraw(attempt.job, 0.0)
    broker.take()
    assert worker.state is state
    broker.availability.detach(worker, 1.0)
    broker.availability.attach(worker, 2.0)
    assert (worker.state, worker.away_since, broker.take()) == (state, inf, [])


def test_attached_worker_is_given_at_once_what_waits(broker: CheckedBroker) -> None:
    """R64, I6."""
    worker = away(broker)
    job = broker.call(now=1.0)
    broker.availability.attach(worker, 2.0)
    assert broker.take() == [SendJob(attempt_of(job))]
    assert worker.state is WorkerState.BUSY


def test_attached_worker_is_given_jobs_in_their_order_of_all_its_services(broker: CheckedBroker) -> None:
    """R14, R64."""
    worker = away(broker, "a", "b", capacity=3)
    low = broker.call(service="a", now=1.0, priority=4)
    second = broker.call(service="a", now=2.0)
    first = broker.call(service="b", now=1.5)
    high = broker.call(service="b", now=3.0, priority=9)
    broker.availability.attach(worker, 4.0)
    assert broker.take() == [SendJob(attempt_of(job)) for job in (high, first, second)]
    assert (low.state, worker.state) == (JobState.WAITING, WorkerState.BUSY)


def test_attached_worker_stands_last_among_the_idle(broker: CheckedBroker) -> None:
    """D7: it was not idle while it was out of reach."""
    worker, other = broker.worker(), broker.worker()
    broker.availability.detach(worker, 1.0)
    broker.availability.attach(worker, 2.0)
    assert [attempt_of(broker.call(now=3.0)).worker for _ in range(2)] == [other, worker]


def test_worker_that_was_held_back_is_held_back_again(broker: CheckedBroker) -> None:
    """R38, R64."""
    held = broker.worker(held=100.0)
    broker.availability.detach(held, 1.0)
    broker.availability.attach(held, 2.0)
    other = broker.worker(now=3.0)
    assert attempt_of(broker.call(now=4.0)).worker is other


def test_attaching_is_a_life_sign(broker: CheckedBroker) -> None:
    """D1."""
    worker = away(broker, lease=20.0)
    broker.availability.attach(worker, 15.0)
    broker.run_until(34.9)
    assert worker.state is WorkerState.IDLE
    broker.run_until(35.0)
    assert worker.state is WorkerState.GONE


def test_attached_worker_is_not_judged_by_the_old_time_out_of_reach(broker: CheckedBroker) -> None:
    """R5, R64: the next time is counted from its own beginning."""
    worker = away(broker, detach_timeout=60.0)
    broker.availability.attach(worker, 59.0)
    broker.run_until(100.0)
    assert worker.state is WorkerState.IDLE
    broker.availability.detach(worker, 100.0)
    broker.run_until(159.9)
    assert worker.state is WorkerState.DETACHED
    broker.run_until(160.0)
    assert worker.state is WorkerState.GONE


@pytest.mark.parametrize("kind", ["starting", "idle", "busy", "stuck", "draining"])
def test_worker_that_was_not_detached_is_only_seen(broker: CheckedBroker, kind: str) -> None:
    """D1: only `idle` frees its slots."""
    worker = broker.starting()
    if kind != "starting":
        broker.idle(worker, 0.0)
    if kind in ("busy", "stuck", "draining"):
        attempt = broker.running(worker)
        if kind == "stuck":
            broker.withdraw(attempt.job, 0.0)
        elif kind == "draining":
            broker.availability.drain(worker, 0.0)
        broker.call()
    broker.take()
    broker.availability.attach(worker, 2.0)
    assert (worker.state, worker.seen, broker.take()) == (kind, 2.0, [])


def test_attached_worker_is_given_nothing_of_a_paused_service(broker: CheckedBroker) -> None:
    worker = away(broker)
    job = broker.call(now=1.0)
    broker.operator.pause("s")
    broker.availability.attach(worker, 2.0)
    assert (worker.state, job.state) == (WorkerState.IDLE, JobState.WAITING)
    broker.operator.resume("s", 3.0)
    assert attempt_of(job).worker is worker


def test_resumed_service_gives_a_detached_worker_nothing(broker: CheckedBroker) -> None:
    """R64."""
    away(broker)
    broker.operator.pause("s")
    job = broker.call(now=1.0)
    broker.operator.resume("s", 2.0)
    assert (job.state, broker.take()) == (JobState.WAITING, [])


def test_attached_worker_is_given_nothing_while_the_broker_drains(broker: CheckedBroker) -> None:
    worker = away(broker)
    job = broker.store(now=1.0)
    broker.operator.close(2.0)
    broker.take()
    broker.availability.attach(worker, 3.0)
    assert (worker.state, job.state, broker.take()) == (WorkerState.IDLE, JobState.WAITING, [])


# -------------------------------------------------------------------- events while detached


def test_result_of_a_detached_worker_ends_the_job_and_brings_no_other(broker: CheckedBroker, caller: Caller) -> None:
    """R64: until it is attached."""
    attempt = away_busy(broker, caller)
    following = broker.call(now=1.0)
    assert broker.succeed(attempt, b"result", 2.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.DONE, b"result")]
    assert (attempt.worker.state, attempt.worker.free) == (WorkerState.DETACHED, 1)
    broker.availability.attach(attempt.worker, 3.0)
    assert broker.take() == [SendJob(attempt_of(following))]


@pytest.mark.parametrize("way", ["fail", "refuse", "reject"])
def test_other_words_of_a_detached_worker_count_and_bring_no_job(broker: CheckedBroker, way: str) -> None:
    attempt = away_busy(broker, may_decline=True)
    following = broker.call(now=1.0)
    if way == "refuse":
        assert broker.attempts.refuse(attempt, 2.0)
    else:
        assert getattr(broker.attempts if way == "reject" else broker, way)(attempt, "no", 2.0)
    assert (attempt.job.attempt, attempt.worker.state) == (None, WorkerState.DETACHED)
    assert attempt.job.state is (JobState.WAITING if way == "refuse" else JobState.ENDED)
    assert (following.state, broker.counters.dispatched) == (JobState.WAITING, 1)


def test_run_time_of_a_job_is_over_while_its_worker_is_detached(broker: CheckedBroker, caller: Caller) -> None:
    """R7, D11: the slot is stuck, and stays so when the worker is back."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller, job_timeout=10.0)
    broker.availability.detach(worker, 1.0)
    broker.run_until(10.0)
    reason = "no result within 10 s"
    assert broker.take() == [
        CancelAttempt(attempt, reason),
        DeliverOutcome(caller, attempt.job, Outcome.TIMED_OUT, reason=reason),
    ]
    assert (worker.state, list(worker.stuck.values())) == (WorkerState.DETACHED, [attempt])
    broker.availability.attach(worker, 11.0)
    assert worker.state is WorkerState.STUCK


def test_job_is_cancelled_while_its_worker_is_detached(broker: CheckedBroker) -> None:
    """D11: its late result proves the worker free, and brings nothing until it is attached."""
    attempt = away_busy(broker)
    following = broker.call(now=1.0)
    broker.withdraw(attempt.job, 2.0)
    assert CancelAttempt(attempt, "withdrawn") in broker.take()
    assert not broker.succeed(attempt, b"late", 3.0)
    assert (attempt.worker.state, attempt.worker.free, broker.take()) == (WorkerState.DETACHED, 1, [])
    broker.availability.attach(attempt.worker, 4.0)
    assert broker.take() == [SendJob(attempt_of(following))]


def test_detached_worker_that_says_it_is_free_is_believed_and_still_detached(broker: CheckedBroker) -> None:
    """D11, R64."""
    attempt = away_busy(broker)
    broker.withdraw(attempt.job, 1.0)
    job = broker.call(now=2.0)
    assert broker.idle(attempt.worker, 3.0)
    assert (attempt.worker.state, attempt.worker.free, job.state) == (WorkerState.DETACHED, 1, JobState.WAITING)


def test_job_that_was_not_yet_sent_is_cancelled_and_leaves_no_doubt(broker: CheckedBroker) -> None:
    """R8: its SendJob had not been executed when its worker was detached."""
    worker = broker.worker()
    job = broker.call()
    broker.availability.detach(worker, 1.0)
    broker.withdraw(job, 2.0)
    assert not [effect for effect in broker.take() if isinstance(effect, SendJob | CancelAttempt)]
    assert (worker.state, worker.free) == (WorkerState.DETACHED, 1)


def test_free_slots_of_a_detached_worker_are_filled_when_it_is_attached(broker: CheckedBroker) -> None:
    """R64, I2: and no more of them."""
    worker = broker.worker(capacity=3)
    running = broker.running(worker)
    broker.availability.detach(worker, 1.0)
    jobs = [broker.call(now=2.0) for _ in range(3)]
    assert list(worker.running.values()) == [running]
    broker.availability.attach(worker, 3.0)
    assert broker.take() == [SendJob(attempt_of(job)) for job in jobs[:2]]
    assert (worker.state, jobs[2].state) == (WorkerState.BUSY, JobState.WAITING)


def test_attached_worker_with_a_slot_left_is_idle(broker: CheckedBroker) -> None:
    worker = broker.worker(capacity=2)
    broker.running(worker)
    broker.availability.detach(worker, 1.0)
    broker.availability.attach(worker, 2.0)
    assert (worker.state, idle_lists(broker)) == (WorkerState.IDLE, [worker])


# -------------------------------------------------------------------- drain, leave


def test_detached_worker_that_holds_nothing_is_drained_at_once(broker: CheckedBroker) -> None:
    worker = away(broker)
    broker.availability.drain(worker, 1.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.DRAINED, "drained")]
    assert worker.state is WorkerState.GONE


def test_detached_worker_that_is_drained_may_bring_its_result(broker: CheckedBroker, caller: Caller) -> None:
    attempt = away_busy(broker, caller)
    broker.availability.drain(attempt.worker, 1.0)
    assert attempt.worker.state is WorkerState.DRAINING
    broker.succeed(attempt, b"result", 2.0)
    assert broker.take() == [
        DeliverOutcome(caller, attempt.job, Outcome.DONE, b"result"),
        RemoveWorker(attempt.worker, RemovalReason.DRAINED, "drained"),
    ]


@pytest.mark.parametrize("is_drained_first", [True, False])
def test_draining_worker_out_of_reach_is_waited_for_so_long_and_no_longer(
    broker: CheckedBroker, is_drained_first: bool
) -> None:
    """R64: it is draining, and its time runs."""
    attempt = broker.running(broker.worker(detach_timeout=60.0), job_timeout=1_000.0)
    worker = attempt.worker
    steps = [lambda: broker.availability.drain(worker, 1.0), lambda: broker.availability.detach(worker, 1.0)]
    for step in steps if is_drained_first else reversed(steps):
        step()
    broker.run_until(60.9)
    assert (worker.state, broker.take()) == (WorkerState.DRAINING, [])
    broker.run_until(61.0)
    assert (worker.state, attempt.job.outcome) == (WorkerState.GONE, Outcome.LOST)


def test_draining_worker_that_is_attached_goes_on_draining(broker: CheckedBroker) -> None:
    """R64: it is reachable again, and gets no job."""
    attempt = away_busy(broker, detach_timeout=60.0)
    worker = attempt.worker
    broker.availability.drain(worker, 1.0)
    broker.call(now=2.0)
    broker.availability.attach(worker, 3.0)
    broker.run_until(100.0)
    assert (worker.state, worker.away_since, broker.take()) == (WorkerState.DRAINING, inf, [])
    broker.succeed(attempt, b"", 101.0)
    assert worker.state is WorkerState.GONE


def test_detached_worker_that_is_killed_loses_its_job(broker: CheckedBroker) -> None:
    """D8."""
    attempt = away_busy(broker)
    broker.availability.drain(attempt.worker, 1.0, at_once=True)
    assert (attempt.worker.state, attempt.job.outcome) == (WorkerState.GONE, Outcome.LOST)


def test_detached_worker_that_leaves_idle_takes_nothing_along(broker: CheckedBroker) -> None:
    worker = away(broker)
    broker.leave(worker, 1.0, "gone")
    assert (worker.state, broker.take(), broker.next_deadline()) == (WorkerState.GONE, [], inf)


@pytest.mark.parametrize(("is_unseen", "outcome"), [(False, Outcome.LOST), (True, None)])
def test_detached_worker_that_leaves_loses_what_it_may_have_seen(
    broker: CheckedBroker, is_unseen: bool, outcome: Outcome | None
) -> None:
    """R8, R9."""
    attempt = away_busy(broker)
    broker.leave(attempt.worker, 1.0, "gone", unseen=[attempt] if is_unseen else [])
    assert (attempt.job.outcome, attempt.job.spent) == (outcome, 0 if is_unseen else 1)
