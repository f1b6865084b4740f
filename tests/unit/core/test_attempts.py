"""Ends of attempts: results, failures, declined jobs, and late results."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.effects import DeliverOutcome, RemoveWorker, SendJob
from dragoman.core.failure import Failure
from dragoman.core.interim_effects import DeliverProgress
from dragoman.core.model import Attempt
from dragoman.core.states import JobState, Outcome, RemovalReason, WorkerState

from .world import Caller, CheckedBroker, attempt_of


def late_attempt(broker: CheckedBroker) -> Attempt:
    """An attempt that timed out: its worker is stuck."""
    attempt = broker.running(broker.worker())
    broker.tick(60.0)
    broker.take()
    return attempt


# -------------------------------------------------------------------- outcomes


def test_result_ends_the_job_done_and_frees_the_worker(broker: CheckedBroker, caller: Caller) -> None:
    """D4, D1."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller)
    assert broker.succeed(attempt, b"result", 1.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.DONE, b"result")]
    assert (worker.state, broker.jobs, broker.job_registry.memory.payloads) == (WorkerState.IDLE, {}, 0)


def test_failure_ends_the_job_failed_when_no_attempt_remains(broker: CheckedBroker, caller: Caller) -> None:
    """D4, D8."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller)
    assert broker.fail(attempt, "it broke", 1.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.FAILED, reason="it broke")]
    assert worker.state is WorkerState.IDLE


def test_death_of_the_worker_ends_the_job_lost(broker: CheckedBroker, caller: Caller) -> None:
    """D4, D8, R9."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller)
    broker.leave(worker, 1.0, "its connection ended")
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.LOST, reason="its connection ended")]


def test_a_worker_that_outlives_the_death_of_a_job_is_free_and_the_job_lost(
    broker: CheckedBroker, caller: Caller
) -> None:
    """D8: the process that ran the job died, and the worker is alive to report it."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller)
    assert broker.fail(attempt, "its process died", 1.0, outcome=Outcome.LOST)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.LOST, reason="its process died")]
    assert worker.state is WorkerState.IDLE
    assert attempt.job.deaths == 1


def test_reject_ends_the_job_failed_and_the_worker_stays_free(broker: CheckedBroker, caller: Caller) -> None:
    """R45: the wire cannot carry it; other attempts would not help."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller, attempts=5)
    assert broker.attempts.reject(attempt, "reserved word", 1.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.FAILED, reason="reserved word")]
    assert worker.state is WorkerState.IDLE


@pytest.mark.parametrize("verb", ["succeed", "fail", "reject"])
def test_worker_that_is_free_again_gets_the_next_job_after_the_answer(
    broker: CheckedBroker, caller: Caller, verb: str
) -> None:
    """I6; the answer goes first."""
    attempt = broker.running(caller=caller)
    following = broker.call()
    part = broker.attempts if verb == "reject" else broker
    getattr(part, verb)(attempt, b"" if verb == "succeed" else "no", 1.0)
    answer, give = broker.take()
    assert isinstance(answer, DeliverOutcome)
    assert give == SendJob(attempt_of(following))


def test_progress_goes_to_every_caller(broker: CheckedBroker, caller: Caller) -> None:
    other = Caller("other")
    broker.worker()
    job = broker.call(caller=caller, key="k", streams=True)
    broker.call(caller=other, key="k", streams=True)
    broker.take()
    attempt = attempt_of(job)
    assert broker.attempts.progress(attempt, b"half", 1.0)
    assert broker.take() == [DeliverProgress(caller, attempt, b"half"), DeliverProgress(other, attempt, b"half")]
    assert broker.attempts.progress(attempt, b"a part", 1.0, is_part=True)
    assert broker.take() == [DeliverProgress(each, attempt, b"a part", is_part=True) for each in (caller, other)]


def test_progress_extends_the_lease_and_not_the_run_time(broker: CheckedBroker) -> None:
    """R6."""
    worker = broker.worker(lease=5.0)
    attempt = broker.running(worker, job_timeout=8.0)
    broker.attempts.progress(attempt, b"half", 4.0)
    broker.tick(8.0)
    assert attempt.job.outcome is Outcome.TIMED_OUT


def test_a_worker_s_failure_reaches_the_caller(broker: CheckedBroker, caller: Caller) -> None:
    broker.worker()
    job = broker.call(caller=caller)
    broker.take()
    failure = Failure("ValueError", "it broke", "in line 3")
    broker.fail(attempt_of(job), "it broke", 1.0, failure)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.FAILED, reason="it broke", failure=failure)]


def test_error_text_is_bounded() -> None:
    """L19."""
    broker = CheckedBroker(max_error_bytes=10)
    job = broker.store(attempts=1)
    broker.worker()
    broker.fail(attempt_of(job), "e" * 1_000, 1.0)
    assert len(job.reason) == 10
    assert [len(ending.reason) for ending in job.history or []] == [10]


# -------------------------------------------------------------------- too late


@pytest.mark.parametrize(("verb", "argument"), [("succeed", b"late"), ("fail", "late")])
def test_late_result_is_dropped_and_proves_the_worker_free(broker: CheckedBroker, verb: str, argument: object) -> None:
    """D2, D11, R2."""
    attempt = late_attempt(broker)
    assert attempt.worker.state is WorkerState.STUCK
    assert not getattr(broker, verb)(attempt, argument, 61.0)
    assert broker.take() == []
    assert (attempt.worker.state, broker.counters.late_results) == (WorkerState.IDLE, 1)


@pytest.mark.parametrize(("verb", "argument"), [("succeed", b"late"), ("fail", "late")])
def test_late_result_frees_the_worker_for_a_job_that_waits(broker: CheckedBroker, verb: str, argument: object) -> None:
    """D11, I6. A bug: the tables did not let a stuck worker become busy, and the process stopped."""
    attempt = late_attempt(broker)
    job = broker.call(now=60.5)
    getattr(broker, verb)(attempt, argument, 61.0)
    assert broker.take() == [SendJob(attempt_of(job))]
    assert attempt.worker.state is WorkerState.BUSY


def test_second_result_of_a_finished_job_is_dropped(broker: CheckedBroker) -> None:
    """R3, I4."""
    attempt = broker.running()
    assert broker.succeed(attempt, b"1", 1.0)
    broker.take()
    assert not broker.succeed(attempt, b"2", 2.0)
    assert not broker.fail(attempt, "no", 2.0)
    assert broker.take() == []
    assert broker.counters.late_results == 2


def test_only_the_current_attempt_ends_the_job(broker: CheckedBroker, caller: Caller) -> None:
    """D2, R4: the first attempt's result comes while the second runs."""
    first, second = broker.worker(), broker.worker()
    job = broker.call(caller=caller, attempts=2, job_timeout=10.0)
    old = attempt_of(job)
    broker.take()
    broker.tick(10.0)
    broker.tick(11.0)
    new = attempt_of(job)
    assert (old.worker, new.worker) == (first, second)
    broker.take()
    assert not broker.succeed(old, b"old", 12.0)
    assert (broker.take(), job.state) == ([], JobState.RUNNING)
    assert broker.succeed(new, b"new", 13.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.DONE, b"new")]


def test_late_result_never_reaches_the_caller_of_the_workers_next_job(broker: CheckedBroker, caller: Caller) -> None:
    """D2, I7."""
    old = late_attempt(broker)
    broker.idle(old.worker, 61.0)
    job = broker.call(caller=caller, now=62.0)
    broker.take()
    assert not broker.succeed(old, b"old", 63.0)
    assert (broker.take(), job.state, old.worker.state) == ([], JobState.RUNNING, WorkerState.BUSY)


def test_late_result_of_a_worker_that_has_gone_changes_nothing(broker: CheckedBroker) -> None:
    """R2."""
    attempt = late_attempt(broker)
    broker.leave(attempt.worker, 61.0, "gone")
    assert not broker.succeed(attempt, b"late", 62.0)
    assert (broker.take(), attempt.worker.state) == ([], WorkerState.GONE)


@pytest.mark.parametrize("verb", ["refuse", "reject", "progress"])
def test_late_word_that_is_no_result_changes_nothing(broker: CheckedBroker, verb: str) -> None:
    """D2; D11: only a result, or a report of its own, proves a worker free."""
    attempt = late_attempt(broker)
    attempts = broker.attempts
    report, *arguments = {
        "refuse": (attempts.refuse,),
        "reject": (broker.attempts.reject, "no"),
        "progress": (attempts.progress, b"half"),
    }[verb]
    assert not report(attempt, *arguments, 61.0)
    assert (broker.take(), attempt.worker.state) == ([], WorkerState.STUCK)


# -------------------------------------------------------------------- not started


def test_refused_job_goes_to_another_worker_at_once_and_spends_nothing(broker: CheckedBroker) -> None:
    """R8, D8."""
    first, second = broker.worker(may_decline=True), broker.worker()
    job = broker.call()
    broker.take()
    assert broker.attempts.refuse(attempt_of(job), 1.0)
    attempt = attempt_of(job)
    assert broker.take() == [SendJob(attempt)]
    assert (attempt.worker, attempt.number, job.spent, job.history) == (second, 1, 0, None)
    assert first.state is WorkerState.BACKING_OFF


def test_worker_that_refused_gets_nothing_until_it_says_it_is_free(broker: CheckedBroker) -> None:
    """R8, D11."""
    worker = broker.worker(may_decline=True)
    job = broker.call()
    broker.attempts.refuse(attempt_of(job), 1.0)
    broker.call(now=1.0)
    assert (worker.state, job.state) == (WorkerState.BACKING_OFF, JobState.WAITING)
    broker.take()
    broker.idle(worker, 2.0)
    assert broker.take() == [SendJob(attempt_of(job))]


def test_worker_that_may_not_refuse_has_failed(broker: CheckedBroker, caller: Caller) -> None:
    """D8: by its profile it may have seen the job."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller)
    assert broker.attempts.refuse(attempt, 1.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.FAILED, reason="its worker declined it")]
    assert worker.state is WorkerState.STUCK


def test_job_whose_bytes_never_left_goes_to_another_worker(broker: CheckedBroker) -> None:
    """R8, D8, R20."""
    first = broker.worker()
    attempt = broker.running(first)
    second = broker.worker()
    broker.leave(first, 1.0, "gone", unseen=[attempt])
    assert broker.take() == [SendJob(attempt_of(attempt.job))]
    assert (attempt_of(attempt.job).worker, attempt.job.spent, attempt.job.deaths) == (second, 0, 0)


def test_of_what_a_worker_held_only_what_never_left_is_not_spent(broker: CheckedBroker, caller: Caller) -> None:
    """R8, R9 with capacity."""
    worker = broker.worker(capacity=2)
    seen = broker.running(worker, caller=caller)
    unseen = broker.running(worker)
    broker.leave(worker, 1.0, "gone", unseen=[unseen])
    assert broker.take() == [DeliverOutcome(caller, seen.job, Outcome.LOST, reason="gone")]
    assert (unseen.job.state, unseen.job.spent) == (JobState.WAITING, 0)


def test_foreign_attempts_among_the_unseen_change_nothing(broker: CheckedBroker) -> None:
    """R1: hostile or stale arguments."""
    other = broker.running(broker.worker())
    worker = broker.worker()
    mine = broker.running(worker)
    broker.leave(worker, 1.0, "gone", unseen=[other])
    assert other.job.state is JobState.RUNNING
    assert mine.job.outcome is Outcome.LOST


def test_job_rests_a_moment_after_ten_refusals(broker: CheckedBroker) -> None:
    """R8."""
    worker = broker.worker(may_decline=True)
    job = broker.call()
    for number in range(10):
        assert job.state is JobState.RUNNING, number
        broker.attempts.refuse(attempt_of(job), 1.0)
        broker.idle(worker, 1.0)
    assert (job.state, job.start_at, job.spent) == (JobState.DELAYED, 1.1, 0)
    broker.tick(1.1)
    assert job.state is JobState.RUNNING
    for _ in range(9):  # and counts from the beginning
        broker.attempts.refuse(attempt_of(job), 2.0)
        broker.idle(worker, 2.0)
    assert job.state is JobState.RUNNING


def test_refusals_are_bounded_by_the_deadline(broker: CheckedBroker, caller: Caller) -> None:
    """R8."""
    worker = broker.worker(may_decline=True)
    job = broker.call(caller=caller, deadline=5.0)
    broker.attempts.refuse(attempt_of(job), 1.0)
    broker.take()
    broker.tick(5.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.TIMED_OUT, reason="its deadline passed")]
    assert worker.state is WorkerState.BACKING_OFF


def test_workers_a_job_remembers_are_bounded(broker: CheckedBroker) -> None:
    """I5: each new worker has a new number. Before, a job that was declined for a day remembered millions."""
    job = broker.call()
    for number in range(300):
        now = float(number)
        worker = broker.worker(now=now)
        if job.state is JobState.DELAYED:
            broker.tick(now + 0.5)
        broker.leave(worker, now + 0.5, "gone", unseen=list(worker.running.values()))
    assert len(job.tried) <= broker.policy.max_attempts


def test_job_whose_give_was_not_carried_out_is_not_spent_when_its_worker_goes(broker: CheckedBroker) -> None:
    """D8, R8: the worker cannot have seen a job that was not sent. A bug: the call ended *lost*."""
    worker = broker.worker()
    job = broker.call()  # the SendJob is among the effects: the runner has not executed it
    broker.leave(worker, 0.0, "its connection ended")
    assert (job.state, job.spent) == (JobState.WAITING, 0)
    assert broker.take() == []


def test_job_given_in_the_turn_its_workers_lease_ends_is_not_lost(broker: CheckedBroker) -> None:
    """D8, R8, as it happens: a frozen worker, and a call that comes just before the lease ends."""
    worker = broker.worker(lease=5.0)
    job = broker.call(now=5.001)
    broker.tick(5.002)
    assert (job.state, job.spent) == (JobState.WAITING, 0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.EXPIRED, "its worker was silent for 5 s")]


def test_attempt_that_is_over_before_its_give_was_carried_out_is_given_anew(broker: CheckedBroker) -> None:
    """I7, R8. A bug: a run time that ended in the iteration of the dispatch left a SendJob without its payload."""
    worker = broker.worker()
    broker.call(b"payload", job_timeout=0.5)
    broker.tick(1.0)  # the runner is late: it has not executed the SendJob
    assert [(g.attempt, g.attempt.due, g.attempt.job.spent) for g in broker.take() if isinstance(g, SendJob)] == [
        (next(iter(worker.running.values())), 1.5, 0)
    ]


def test_job_that_every_worker_refuses_waits_no_longer_than_its_queue_timeout(broker: CheckedBroker) -> None:
    """R8. A bug: the delay after ten declined dispatches restarted the queue time-out, so that it never ended."""
    worker = broker.worker(may_decline=True)
    job = broker.call(queue_timeout=5.0)
    now = 0.0
    while job.state is not JobState.ENDED and now < 20.0:
        now += 0.05
        broker.tick(now)
        if job.attempt is not None:
            broker.take()
            broker.attempts.refuse(job.attempt, now)
        broker.idle(worker, now)
    assert (job.outcome, round(now)) == (Outcome.TIMED_OUT, 5)


def test_job_with_no_run_time_at_all_ends_though_it_was_handed_out_within_a_tick(broker: CheckedBroker) -> None:
    """R72, I4. A bug: it timed out before it could be sent, was queued again as not started, and so on forever."""
    worker = broker.worker()
    job = broker.call(job_timeout=0.0, delay=1.0)
    for tenths in range(10, 50):
        broker.tick(tenths / 10)
        broker.take()
    assert (job.outcome, worker.state) == (Outcome.TIMED_OUT, WorkerState.IDLE)


def test_a_job_without_any_limit_has_that_of_a_silent_worker_s_listener(broker: CheckedBroker) -> None:
    """D5: nothing else would ever end it."""
    worker = broker.worker(silent_while_busy=True, job_timeout=600.0)
    attempt = broker.running(worker, job_timeout=inf)
    attempt.is_sent = True
    broker.tick(599.0)
    assert attempt.job.outcome is None
    broker.tick(600.0)
    assert attempt.job.outcome is Outcome.TIMED_OUT
    assert "no result within 600 s" in repr(broker.take())


def test_a_postponed_attempt_is_not_timed_out_until_it_has_begun(broker: CheckedBroker) -> None:
    attempt = broker.running(job_timeout=10.0)
    attempt.postpone()
    broker.tick(50.0)
    assert attempt.job.outcome is None
    broker.attempts.begin(attempt, 60.0)
    broker.tick(69.9)
    assert attempt.job.outcome is None
    broker.tick(70.0)
    assert attempt.job.outcome is Outcome.TIMED_OUT


def test_a_deadline_or_a_time_out_of_its_own_is_limit_enough(broker: CheckedBroker) -> None:
    worker = broker.worker(capacity=3, silent_while_busy=True, job_timeout=600.0)
    dues = [
        attempt_of(broker.call(**job_options)).over_at
        for job_options in ({"job_timeout": inf, "deadline": 5_000.0}, {"job_timeout": 700.0}, {"job_timeout": inf})
    ]
    assert dues == [5_000.0, 700.0, 600.0]
    assert worker.profile.job_timeout == 600.0


def test_an_attempt_that_its_worker_stopped_at_the_time_limit_is_timed_out(
    broker: CheckedBroker, caller: Caller
) -> None:
    """R220. It ended *failed* if the worker's report arrived before the broker's own timer."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller, job_timeout=5.0)
    assert broker.attempts.stopped(attempt, 4.99)
    assert broker.take() == [
        DeliverOutcome(caller, attempt.job, Outcome.TIMED_OUT, reason="no result within 5 s"),
    ]
    assert worker.state is WorkerState.IDLE


def test_an_attempt_that_its_worker_stopped_is_retried_and_late_if_the_broker_was_first(broker: CheckedBroker) -> None:
    """R220, D2."""
    worker = broker.worker()
    attempt = broker.running(worker, job_timeout=5.0, attempts=2)
    assert broker.attempts.stopped(attempt, 5.0)
    assert attempt.job.state is JobState.DELAYED
    late = late_attempt(broker)
    assert not broker.attempts.stopped(late, 61.0)
    assert broker.counters.late_results == 1


def test_an_attempt_that_was_stopped_at_its_callers_deadline_ends_its_job(
    broker: CheckedBroker, caller: Caller
) -> None:
    """R220: no attempt follows, as after the broker's own timer."""
    worker = broker.worker()
    job = broker.call(caller=caller, deadline=2.0, job_timeout=inf, attempts=3)
    attempt = attempt_of(job)
    broker.take()
    assert broker.attempts.stopped(attempt, 2.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.TIMED_OUT, reason="its deadline passed")]
    assert worker.state is WorkerState.IDLE
