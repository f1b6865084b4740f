"""Workers: alive is not idle, stuck is not idle, and silence has its limit."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.broker import Broker
from dragoman.core.effects import CancelAttempt, DeliverOutcome, RemoveWorker, SendJob
from dragoman.core.model import Attempt, Worker
from dragoman.core.options import WorkerProfile
from dragoman.core.policy import Policy
from dragoman.core.recipients import dialect_of
from dragoman.core.states import JobState, Outcome, RemovalReason, WorkerState
from dragoman.core.worker_removal import SILENT_FOR, SILENT_KEPT
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER

from .world import NOBODY, Caller, CheckedBroker, attempt_of


def stuck(broker: CheckedBroker, worker: Worker, now: float = 1.0, **job_options: object) -> Attempt:
    """Let a job of this worker be withdrawn."""
    attempt = broker.running(worker, now=now, **job_options)
    assert attempt.worker is worker
    broker.withdraw(attempt.job, now)
    broker.take()
    return attempt


# -------------------------------------------------------------------- alive, idle


def test_worker_is_starting_until_it_says_it_is_idle(broker: CheckedBroker) -> None:
    worker = broker.starting()
    broker.seen(worker, 1.0)
    broker.call(now=1.0)
    assert (worker.state, broker.take()) == (WorkerState.STARTING, [])
    assert broker.idle(worker, 2.0)
    assert worker.state is WorkerState.BUSY


def test_worker_that_boots_for_too_long_is_dismissed(broker: CheckedBroker) -> None:
    """R86: its lease runs."""
    worker = broker.starting(lease=5.0)
    broker.tick(5.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.EXPIRED, "its worker was silent for 5 s")]


def test_life_sign_of_a_busy_worker_does_not_make_it_idle(broker: CheckedBroker) -> None:
    """D1, R32."""
    worker = broker.worker()
    broker.running(worker)
    broker.call(now=1.0)
    broker.seen(worker, 1.0)
    assert not broker.idle(worker, 1.0)
    assert (worker.state, broker.take(), len(worker.running)) == (WorkerState.BUSY, [], 1)


def test_idle_worker_that_says_so_again_stands_once_among_the_idle(broker: CheckedBroker) -> None:
    """R33, D7."""
    worker = broker.worker()
    assert not broker.idle(worker, 1.0)
    broker.call()
    broker.call()
    assert len(worker.running) == 1


def test_lease_lives_as_long_as_the_worker_is_heard_from(broker: CheckedBroker) -> None:
    """D5."""
    worker = broker.worker(lease=5.0)
    for now in range(0, 40, 4):
        broker.seen(worker, float(now))
        broker.tick(float(now) + 3.9)
    assert worker.state is WorkerState.IDLE
    broker.tick(41.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.EXPIRED, "its worker was silent for 5 s")]
    assert (worker.state, broker.counters.expired_workers, broker.worker_registry.workers) == (WorkerState.GONE, 1, {})


def test_busy_worker_that_falls_silent_is_lost_with_its_job(broker: CheckedBroker, caller: Caller) -> None:
    """D5, D8."""
    worker = broker.worker(lease=5.0)
    attempt = broker.running(worker, caller=caller)
    broker.tick(5.0)
    reason = "its worker was silent for 5 s"
    assert broker.take() == [
        RemoveWorker(worker, RemovalReason.EXPIRED, reason),
        DeliverOutcome(caller, attempt.job, Outcome.LOST, reason=reason),
    ]


def test_worker_that_is_silent_while_it_works_is_judged_by_the_jobs_time_alone(
    broker: CheckedBroker, caller: Caller
) -> None:
    """D5."""
    worker = broker.worker(lease=5.0, silent_while_busy=True)
    attempt = broker.running(worker, caller=caller, job_timeout=60.0)
    broker.run_until(59.9)
    assert (worker.state, broker.take()) == (WorkerState.BUSY, [])
    broker.run_until(60.0)
    assert broker.take()[0] == CancelAttempt(attempt, "no result within 60 s")
    assert worker.state is WorkerState.STUCK


def test_worker_that_is_silent_while_it_works_has_its_lease_again_when_idle(broker: CheckedBroker) -> None:
    """D5."""
    worker = broker.worker(lease=5.0, silent_while_busy=True)
    attempt = broker.running(worker)
    broker.run_until(30.0)
    broker.succeed(attempt, b"", 30.0)
    broker.run_until(34.9)
    assert worker.state is WorkerState.IDLE
    broker.run_until(35.0)
    assert worker.state is WorkerState.GONE


def test_every_word_about_an_attempt_is_a_life_sign(broker: CheckedBroker) -> None:
    """D1: even a late one."""
    worker = broker.worker(lease=5.0, may_decline=True)
    attempt = broker.running(worker)
    for number, say in enumerate(
        (
            lambda now: broker.attempts.progress(attempt, b"", now),
            lambda now: broker.succeed(attempt, b"", now),
            lambda now: broker.fail(attempt, "late", now),
            lambda now: broker.attempts.refuse(attempt, now),
            lambda now: broker.attempts.progress(attempt, b"", now),
        ),
        start=1,
    ):
        say(4.0 * number)
        broker.tick(4.0 * number + 3.0)
        assert worker.state is not WorkerState.GONE


def test_worker_that_leaves_idle_takes_nothing_along(broker: CheckedBroker) -> None:
    worker = broker.worker()
    broker.leave(worker, 1.0, "gone")
    broker.leave(worker, 2.0, "gone again")
    assert (broker.take(), worker.state, broker.next_deadline()) == ([], WorkerState.GONE, inf)
    assert broker.call().state is JobState.WAITING


def test_new_life_of_a_worker_is_another_worker(broker: CheckedBroker, caller: Caller) -> None:
    """D3: the session ends the old life, its job follows D8 at once, the new one is idle."""
    old = broker.worker(name="same")
    attempt = broker.running(old, caller=caller, attempts=2)
    new = broker.worker(name="same", now=1.0)
    broker.leave(old, 1.0, "came back on a new connection")
    assert (attempt.job.state, attempt.job.spent, old.state) == (JobState.DELAYED, 1, WorkerState.GONE)
    broker.tick(1.1)
    assert attempt_of(attempt.job).worker is new
    assert not broker.succeed(attempt, b"of the old life", 2.0)


# -------------------------------------------------------------------- stuck


def test_stuck_worker_gets_nothing_whatever_life_it_shows(broker: CheckedBroker) -> None:
    """D11, R7, R36: a PING never frees it."""
    worker = broker.worker(lease=5.0)
    stuck(broker, worker)
    job = broker.call(now=2.0)
    for now in (3.0, 6.0, 9.0):
        broker.seen(worker, now)
        broker.tick(now)
    assert (worker.state, job.state, broker.take()) == (WorkerState.STUCK, JobState.WAITING, [])


def test_stuck_worker_that_says_it_is_free_is_believed(broker: CheckedBroker) -> None:
    """D11, R36."""
    worker = broker.worker()
    stuck(broker, worker)
    assert broker.idle(worker, 2.0)
    assert worker.state is WorkerState.IDLE
    assert broker.call(now=3.0).state is JobState.RUNNING


def test_stuck_worker_that_says_it_is_free_gets_the_job_that_waits(broker: CheckedBroker) -> None:
    """D11, I6. A bug: the tables did not let a stuck worker become busy, and the process stopped."""
    worker = broker.worker()
    stuck(broker, worker)
    job = broker.call(now=2.0)
    assert broker.idle(worker, 3.0)
    assert broker.take() == [SendJob(attempt_of(job))]
    assert worker.state is WorkerState.BUSY


def test_stuck_worker_is_waited_for_so_long_and_no_longer(broker: CheckedBroker) -> None:
    """R36."""
    worker = broker.worker(stuck_timeout=100.0)
    stuck(broker, worker)
    broker.seen(worker, 100.0)
    broker.run_until(100.9)
    assert worker.state is WorkerState.STUCK
    broker.run_until(101.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.EXPIRED, "its worker was stuck for 100 s")]


def test_stuck_worker_that_falls_silent_is_gone_when_its_lease_is(broker: CheckedBroker) -> None:
    worker = broker.worker(lease=5.0)
    stuck(broker, worker)
    broker.tick(6.0)
    assert worker.state is WorkerState.GONE


def test_worker_that_was_proven_is_not_judged_by_the_old_limit(broker: CheckedBroker) -> None:
    """R5."""
    worker = broker.worker(stuck_timeout=100.0)
    attempt = stuck(broker, worker)
    broker.succeed(attempt, b"late", 50.0)
    broker.run_until(200.0)
    assert worker.state is WorkerState.IDLE


# -------------------------------------------------------------------- several slots


def test_worker_holds_as_many_jobs_as_it_has_slots(broker: CheckedBroker) -> None:
    """I2."""
    worker = broker.worker(capacity=3)
    jobs = [broker.call() for _ in range(4)]
    assert [job.state for job in jobs] == [JobState.RUNNING] * 3 + [JobState.WAITING]
    assert worker.state is WorkerState.BUSY


def test_worker_of_several_slots_takes_all_that_waits_when_it_comes(broker: CheckedBroker) -> None:
    """I6."""
    jobs = [broker.call() for _ in range(4)]
    broker.take()
    worker = broker.worker(capacity=3)
    assert broker.take() == [SendJob(attempt_of(job)) for job in jobs[:3]]
    assert (worker.state, jobs[3].state) == (WorkerState.BUSY, JobState.WAITING)


def test_each_slot_is_stuck_by_itself(broker: CheckedBroker) -> None:
    """D11."""
    worker = broker.worker(capacity=2)
    stuck(broker, worker)
    assert (worker.state, worker.free) == (WorkerState.IDLE, 1)
    other = broker.running(worker)
    assert (worker.state, worker.free) == (WorkerState.BUSY, 0)
    broker.withdraw(other.job, 2.0)
    assert (worker.state, worker.free) == (WorkerState.STUCK, 0)


def test_late_result_proves_its_own_slot_only(broker: CheckedBroker) -> None:
    """D11."""
    worker = broker.worker(capacity=2)
    first, second = stuck(broker, worker), stuck(broker, worker)
    broker.succeed(first, b"late", 2.0)
    assert (worker.state, list(worker.stuck.values())) == (WorkerState.IDLE, [second])


def test_late_result_of_one_slot_lets_one_job_in(broker: CheckedBroker) -> None:
    """D11, I6."""
    worker = broker.worker(capacity=2)
    first, second = stuck(broker, worker), stuck(broker, worker)
    jobs = [broker.call(now=2.0), broker.call(now=2.0)]
    broker.succeed(first, b"late", 3.0)
    assert [job.state for job in jobs] == [JobState.RUNNING, JobState.WAITING]
    assert worker.state is WorkerState.BUSY
    broker.succeed(second, b"late", 4.0)
    assert [job.state for job in jobs] == [JobState.RUNNING, JobState.RUNNING]


def test_word_of_being_free_proves_all_slots_but_those_where_a_job_runs(broker: CheckedBroker) -> None:
    """D1, D11."""
    worker = broker.worker(capacity=3)
    stuck(broker, worker)
    stuck(broker, worker)
    running = broker.running(worker)
    assert broker.idle(worker, 2.0)
    assert (worker.state, list(worker.running.values()), worker.stuck) == (WorkerState.IDLE, [running], {})


def test_stuck_limit_counts_for_each_slot(broker: CheckedBroker) -> None:
    """R36. A bug: with two slots that were stuck in alternation, each freed soon, the first one's time ran on."""
    worker = broker.worker(capacity=2, stuck_timeout=100.0)
    doubtful = stuck(broker, worker, now=0.0)
    for now in range(10, 300, 10):
        following = stuck(broker, worker, now=float(now))
        broker.succeed(doubtful, b"late", float(now) + 5.0)
        doubtful = following
        broker.run_until(float(now) + 5.0)
    assert worker.state is WorkerState.IDLE


def test_oldest_stuck_slot_counts(broker: CheckedBroker) -> None:
    """R36: a newer stuck slot does not renew the older one's time."""
    worker = broker.worker(capacity=2, stuck_timeout=100.0)
    stuck(broker, worker, now=0.0)
    broker.succeed(stuck(broker, worker, now=50.0), b"late", 60.0)
    broker.run_until(100.0)
    assert worker.state is WorkerState.GONE


def test_worker_without_a_slot_cannot_be(broker: CheckedBroker) -> None:
    """I2. Before, it became idle without a slot for a job, and `check` failed."""
    with pytest.raises(ValueError, match="capacity 0"):
        WorkerProfile(capacity=0)


# -------------------------------------------------------------------- pauses of the broker


def test_our_own_pause_kills_nobody(broker: CheckedBroker) -> None:
    """D13, R22, R26: 30 s of SIGSTOP with 1,000 workers, none expired."""
    workers = [broker.worker(lease=5.0) for _ in range(50)]
    for worker in workers:
        broker.seen(worker, 3.0)
    broker.extend_leases(30.0, 34.0)
    broker.tick(34.0)
    assert (broker.take(), broker.counters.expired_workers, broker.resumed_at) == ([], 0, 34.0)
    broker.run_until(38.0)
    assert broker.counters.expired_workers == 50


def test_pause_does_not_move_a_life_sign_into_the_future(broker: CheckedBroker) -> None:
    """R22."""
    worker = broker.worker(lease=5.0)
    broker.seen(worker, 33.5)  # received while all sockets were read
    broker.extend_leases(30.0, 34.0)
    assert worker.seen == 34.0


def test_our_own_pause_does_not_count_as_being_stuck(broker: CheckedBroker) -> None:
    """D13: no limit removes it. Before, only the lease was moved."""
    worker = broker.worker(stuck_timeout=100.0)
    stuck(broker, worker)
    broker.extend_leases(500.0, 501.0)
    broker.tick(501.0)
    assert worker.state is WorkerState.STUCK


def test_pause_does_not_move_the_times_of_jobs(broker: CheckedBroker) -> None:
    """R22 moves leases; a caller measures its own time-out by its own clock."""
    job = broker.call(deadline=20.0)
    broker.extend_leases(30.0, 34.0)
    broker.tick(34.0)
    assert job.outcome is Outcome.TIMED_OUT


def test_silent_worker_whose_session_hangs_up_keeps_its_jobs_until_it_is_known_what_never_left(
    broker: CheckedBroker,
) -> None:
    """R8. A bug: jobs that were still in the send buffer ended *lost* when the lease of their worker ended."""
    worker = broker.worker(lease=5.0, ends_with_connection=True, capacity=2)
    seen, unseen = broker.call(), broker.call()
    attempt = attempt_of(unseen)
    broker.take()
    broker.tick(5.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.EXPIRED, "its worker was silent for 5 s")]
    assert (seen.state, unseen.state, worker.state) == (JobState.RUNNING, JobState.RUNNING, WorkerState.DRAINING)
    broker.leave(worker, 5.0, "its worker's connection ended", [attempt])
    assert (seen.outcome, unseen.state) == (Outcome.LOST, JobState.WAITING)


# -------------------------------------------------------------------- removed because it was silent, and alive


def test_r88_a_silent_worker_that_joins_again_under_its_name_was_alive(broker: CheckedBroker) -> None:
    """Workers that were frozen and went on were counted in one dialect only."""
    broker.worker(name="frozen", lease=5.0)
    broker.tick(5.0)
    broker.take()
    assert (broker.counters.expired_workers, broker.counters.false_expiries) == (1, 0)
    broker.worker(name="another", now=6.0)
    assert broker.counters.false_expiries == 0
    for now in (6.0, 7.0):
        broker.worker(name="frozen", now=now)
    assert broker.counters.false_expiries == 1, "once"


def test_r88_a_worker_that_joins_long_after_its_removal_is_a_new_one(broker: CheckedBroker) -> None:
    broker.worker(name="w", lease=5.0)
    broker.tick(5.0)
    broker.take()
    broker.worker(name="w", now=5.0 + SILENT_FOR)
    assert broker.counters.false_expiries == 0


def test_r88_a_worker_that_left_and_returns_was_not_removed(broker: CheckedBroker) -> None:
    worker = broker.worker(name="w")
    broker.leave(worker, 1.0, "its connection ended")
    broker.worker(name="w", now=2.0)
    assert broker.counters.false_expiries == 0


def test_r88_what_is_remembered_of_silent_workers_is_bounded() -> None:
    """I5."""
    broker = Broker(Policy(), SeededEntropy(1))
    removal = broker.dispatch.removal
    for number in range(SILENT_KEPT + 10):
        worker = broker.join(NOBODY, None, f"w{number}", ("s",), WorkerProfile(), 0.0, LOCAL_OWNER)
        assert worker is not None
        removal.note_silent(worker, 1.0)
        broker.leave(worker, 1.0, "silent")
    for name in ("w0", f"w{SILENT_KEPT}"):
        removal.appeared(LOCAL_OWNER.principal, dialect_of(NOBODY), name, 2.0)
    assert broker.counters.false_expiries == 1
