"""Detached workers: they get no job, and are kept for a while."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.effects import DeliverOutcome, RemoveWorker
from dragoman.core.states import JobState, Outcome, RemovalReason, WorkerState

from .detached_workers import away, away_busy, idle_lists
from .world import Caller, CheckedBroker, attempt_of

# -------------------------------------------------------------------- detach


@pytest.mark.parametrize("held", [0.0, 1_000.0])
def test_detached_worker_stands_among_the_idle_of_none_of_its_services(broker: CheckedBroker, held: float) -> None:
    """R64, I2: nor among those that are used last."""
    worker = broker.worker("a", "b", held=held)
    assert idle_lists(broker) == [worker, worker]
    broker.availability.detach(worker, 1.0)
    assert (worker.state, worker.away_since, idle_lists(broker)) == (WorkerState.DETACHED, 1.0, [])


def test_detached_worker_is_given_nothing(broker: CheckedBroker) -> None:
    """R64: but its service is known, so the call waits."""
    away(broker)
    job = broker.call(now=1.0, waits=False)
    assert (job.state, broker.take()) == (JobState.WAITING, [])


def test_job_goes_to_a_worker_within_reach_though_the_other_has_been_idle_for_longer(broker: CheckedBroker) -> None:
    """R64, D7."""
    away(broker)
    other = broker.worker(now=1.0)
    assert attempt_of(broker.call(now=2.0)).worker is other


def test_attempt_of_a_detached_worker_stays_open(broker: CheckedBroker, caller: Caller) -> None:
    """R65: it may still fetch the job, so no other worker gets it."""
    attempt = away_busy(broker, caller)
    broker.worker(now=1.0)
    broker.run_until(59.9)
    assert (attempt.job.attempt, attempt.worker.state, broker.take()) == (attempt, WorkerState.DETACHED, [])


def test_starting_worker_is_not_detached(broker: CheckedBroker) -> None:
    """R64: it has never been reachable; only its lease applies."""
    worker = broker.starting()
    broker.availability.detach(worker, 1.0)
    assert (worker.state, worker.away_since, broker.next_deadline()) == (WorkerState.STARTING, inf, inf)
    broker.idle(worker, 2.0)
    assert broker.call(now=3.0).state is JobState.RUNNING


def test_worker_that_has_gone_is_not_detached(broker: CheckedBroker) -> None:
    worker = broker.worker()
    broker.leave(worker, 1.0, "gone")
    broker.availability.detach(worker, 2.0)
    broker.availability.attach(worker, 3.0)
    assert (worker.state, idle_lists(broker), broker.next_deadline()) == (WorkerState.GONE, [], inf)


# -------------------------------------------------------------------- how long it is waited for


def test_detached_worker_is_waited_for_so_long_and_no_longer(broker: CheckedBroker) -> None:
    """R64. A bug: the reason was that it had been silent, for a lease of `inf s`."""
    worker = broker.worker(detach_timeout=60.0)
    broker.availability.detach(worker, 10.0)
    broker.run_until(69.9)
    assert (worker.state, broker.take()) == (WorkerState.DETACHED, [])
    broker.run_until(70.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.EXPIRED, "its worker was out of reach for 60 s")]
    assert (worker.state, broker.counters.expired_workers, broker.next_deadline()) == (WorkerState.GONE, 1, inf)


def test_what_a_dismissed_worker_held_is_lost(broker: CheckedBroker, caller: Caller) -> None:
    """R9, R64: it may have been seen."""
    attempt = away_busy(broker, caller)
    broker.run_until(60.0)
    dismissed, answer = broker.take()
    assert isinstance(dismissed, RemoveWorker)
    assert answer == DeliverOutcome(caller, attempt.job, Outcome.LOST, reason=dismissed.reason)
    assert (attempt.job.spent, attempt.job.deaths) == (1, 1)


def test_what_a_dismissed_worker_held_is_tried_again_while_attempts_remain(broker: CheckedBroker) -> None:
    """R9, R11."""
    worker = broker.worker()
    job = broker.running(worker, attempts=2, job_timeout=1_000.0).job
    other = broker.worker()
    broker.availability.detach(worker, 0.0)
    broker.run_until(60.1)
    assert (attempt_of(job).worker, job.spent) == (other, 1)


def test_lease_of_a_detached_worker_runs_on(broker: CheckedBroker) -> None:
    """R64."""
    worker = broker.worker(lease=20.0, detach_timeout=60.0)
    broker.seen(worker, 5.0)
    broker.availability.detach(worker, 10.0)
    broker.run_until(24.9)
    assert worker.state is WorkerState.DETACHED
    broker.run_until(25.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.EXPIRED, "its worker was silent for 20 s")]


@pytest.mark.parametrize("lease", [20.0, inf])
def test_life_sign_extends_the_lease_and_not_the_time_out_of_reach(broker: CheckedBroker, lease: float) -> None:
    """D1, R64: if there is a lease, it applies; otherwise the time since it was detached."""
    worker = away(broker, lease=lease, detach_timeout=60.0)
    for now in range(0, 60, 10):
        broker.seen(worker, float(now))
        broker.run_until(float(now) + 9.9)
    assert worker.state is WorkerState.DETACHED
    broker.run_until(60.0)
    assert worker.state is (WorkerState.GONE if lease == inf else WorkerState.DETACHED)


def test_worker_that_is_silent_while_it_works_has_a_limit_out_of_reach(broker: CheckedBroker) -> None:
    """D5, R64: in any case, whether or not it holds a job."""
    attempt = away_busy(broker, lease=5.0, silent_while_busy=True, detach_timeout=60.0)
    broker.run_until(59.9)
    assert attempt.worker.state is WorkerState.DETACHED
    broker.run_until(60.0)
    assert (attempt.worker.state, attempt.job.outcome) == (WorkerState.GONE, Outcome.LOST)


def test_worker_that_was_silent_while_it_worked_has_its_lease_again_while_detached(broker: CheckedBroker) -> None:
    """D5, R64."""
    attempt = away_busy(broker, lease=5.0, silent_while_busy=True, detach_timeout=60.0)
    broker.run_until(30.0)
    broker.succeed(attempt, b"", 30.0)
    broker.run_until(34.9)
    assert attempt.worker.state is WorkerState.DETACHED
    broker.run_until(35.0)
    assert attempt.worker.state is WorkerState.GONE


def test_detached_worker_in_doubt_is_judged_by_the_limit_of_doubt(broker: CheckedBroker) -> None:
    """R36, R64."""
    attempt = away_busy(broker, stuck_timeout=20.0)
    broker.withdraw(attempt.job, 1.0)
    broker.take()
    broker.run_until(20.9)
    assert attempt.worker.state is WorkerState.DETACHED
    broker.run_until(21.0)
    assert broker.take() == [RemoveWorker(attempt.worker, RemovalReason.EXPIRED, "its worker was stuck for 20 s")]


def test_worker_that_is_detached_twice_counts_from_the_first_time(broker: CheckedBroker) -> None:
    """R64."""
    worker = broker.worker(detach_timeout=60.0)
    broker.availability.detach(worker, 10.0)
    broker.availability.detach(worker, 50.0)
    assert worker.away_since == 10.0
    broker.run_until(70.0)
    assert worker.state is WorkerState.GONE


def test_our_own_pause_does_not_count_as_being_out_of_reach(broker: CheckedBroker) -> None:
    """D13: no worker could reach the broker."""
    worker = away(broker, detach_timeout=60.0)
    broker.extend_leases(500.0, 510.0)
    broker.run_until(559.9)
    assert (worker.away_since, worker.state) == (500.0, WorkerState.DETACHED)
    broker.run_until(560.0)
    assert worker.state is WorkerState.GONE


def test_our_own_pause_does_not_count_against_callers_that_are_away(broker: CheckedBroker) -> None:
    """D13. A bug: a job whose caller was about to return was cancelled after the pause."""
    job = broker.call(orphan_grace=5.0)
    broker.availability.caller_away(job.callers[0], 0.0)
    broker.extend_leases(60.0, 61.0)
    broker.tick(61.0)
    assert job.state is JobState.WAITING
    broker.tick(66.0)
    assert job.outcome is Outcome.CANCELLED


def test_pause_does_not_move_the_time_out_of_reach_into_the_future(broker: CheckedBroker) -> None:
    """D13, R22: nor does it take a worker within reach out of it."""
    worker, other = broker.worker(), broker.worker()
    broker.availability.detach(worker, 33.5)  # while the sockets were read dry
    broker.extend_leases(30.0, 34.0)
    assert (worker.away_since, other.away_since, other.state) == (34.0, inf, WorkerState.IDLE)
