"""Submitted jobs: accepted, queued, delayed, cancelled; and the three time-outs."""

from __future__ import annotations

from math import inf

import pytest

from dragoman.core.effects import CancelAttempt, DeliverOutcome, Effect, SendJob
from dragoman.core.model import JobId
from dragoman.core.options import JobOptions
from dragoman.core.states import JobState, Outcome, RefusalReason, WorkerState

from .world import Caller, CheckedBroker, attempt_of


def refusal(caller: Caller, kind: RefusalReason, reason: str) -> list[Effect]:
    return [DeliverOutcome(caller, None, Outcome.REFUSED, reason=f"{kind}: {reason}", refusal=kind)]


def test_job_is_given_at_once_to_an_idle_worker(broker: CheckedBroker) -> None:
    worker = broker.worker()
    job = broker.call(b"payload")
    attempt = attempt_of(job)
    assert broker.take() == [SendJob(attempt)]
    assert (attempt.worker, attempt.number, attempt.given, attempt.due) == (worker, 1, 0.0, 60.0)
    assert (job.state, worker.state) == (JobState.RUNNING, WorkerState.BUSY)


def test_job_waits_for_a_worker_and_is_given_to_it(broker: CheckedBroker) -> None:
    """I6."""
    job = broker.call()
    assert (job.state, broker.take()) == (JobState.WAITING, [])
    broker.worker(now=1.0)
    assert broker.take() == [SendJob(attempt_of(job))]


def test_job_is_never_given_to_a_busy_worker(broker: CheckedBroker) -> None:
    """D7."""
    broker.worker()
    broker.call(b"1")
    second = broker.call(b"2")
    assert second.state is JobState.WAITING


def test_attempts_are_named_by_tokens_of_their_own(broker: CheckedBroker) -> None:
    """R1, R28."""
    broker.worker(capacity=100)
    tokens = {attempt_of(broker.call()).token for _ in range(100)}
    assert len(tokens) == 100
    assert {len(token) for token in tokens} == {16}


def test_jobs_have_ids_of_their_own(broker: CheckedBroker) -> None:
    """R28: 128 bits."""
    ids = {broker.call().id for _ in range(100)}
    assert len(ids) == 100
    assert {len(job_id) for job_id in ids} == {16}


def test_a_job_may_bring_its_id(broker: CheckedBroker) -> None:
    broker.worker()
    named = JobId(b"n" * 16)
    job = broker.submit("s", b"", Caller("c"), JobOptions(), 0.0, id=named)
    assert job is not None
    assert (job.id, broker.jobs[named]) == (named, job)


# -------------------------------------------------------------------- refused


def test_an_id_that_a_present_job_has_is_refused(broker: CheckedBroker, caller: Caller) -> None:
    """Its answer would be another job's."""
    broker.worker()
    job = broker.call()
    broker.take()
    assert broker.submit("s", b"", caller, JobOptions(), 0.0, id=job.id) is None
    assert broker.take() == refusal(caller, RefusalReason.INVALID, "a job with this id already exists")


@pytest.mark.parametrize("name", ["", "a" * 129, "a\0b", "\ud800"])
def test_impossible_service_name_is_invalid(broker: CheckedBroker, caller: Caller, name: str) -> None:
    """R29."""
    assert broker.submit(name, b"x", caller, JobOptions(waits=True), 0.0) is None
    assert broker.take() == refusal(caller, RefusalReason.INVALID, "a service name is 1 to 128 bytes of visible text")
    assert (broker.counters.refused, broker.counters.accepted) == (1, 0)
    assert not broker.worker_registry.services


def test_unknown_service_fails_fast(broker: CheckedBroker, caller: Caller) -> None:
    assert broker.submit("s", b"x", caller, JobOptions(), 0.0) is None
    assert broker.take() == refusal(caller, RefusalReason.NO_SUCH_SERVICE, "no worker offers 's'")
    assert not broker.worker_registry.services


def test_service_others_wait_for_is_still_unknown_to_one_who_does_not_wait(
    broker: CheckedBroker, caller: Caller
) -> None:
    broker.call()
    assert broker.submit("s", b"x", caller, JobOptions(), 0.0) is None
    assert broker.take() == refusal(caller, RefusalReason.NO_SUCH_SERVICE, "no worker offers 's'")


def test_too_many_jobs_are_refused_and_the_limit_is_named(caller: Caller) -> None:
    """R15, running ones count."""
    broker = CheckedBroker(max_jobs=2)
    broker.worker()
    broker.call()
    broker.call(delay=5.0)
    broker.take()
    assert broker.submit("s", b"x", caller, JobOptions(), 0.0) is None
    assert broker.take() == refusal(
        caller, RefusalReason.BUSY, "the broker holds 2 jobs, the maximum (max_jobs); retry later"
    )


def test_too_many_jobs_of_one_service_are_refused_and_the_limit_is_named(caller: Caller) -> None:
    """R15; R13: another service is not touched by it."""
    broker = CheckedBroker(max_jobs_per_service=2)
    broker.call()
    broker.call()
    assert broker.submit("s", b"x", caller, JobOptions(waits=True), 0.0) is None
    assert broker.take() == refusal(
        caller, RefusalReason.BUSY, "2 jobs wait for this service, the maximum (max_jobs_per_service); retry later"
    )
    assert broker.call(service="other").state is JobState.WAITING


def test_too_many_bytes_are_refused_and_the_limit_is_named(caller: Caller) -> None:
    """R15."""
    broker = CheckedBroker(max_memory=10)
    broker.call(b"123456")
    assert broker.submit("s", b"12345", caller, JobOptions(waits=True), 0.0) is None
    assert broker.take() == refusal(
        caller, RefusalReason.BUSY, "payloads of jobs take 6 of 10 bytes (max_memory); retry later"
    )
    assert broker.call(b"1234").state is JobState.WAITING


def test_room_is_there_again_when_a_job_has_ended(caller: Caller) -> None:
    """R15."""
    broker = CheckedBroker(max_jobs=1, max_jobs_per_service=1, max_memory=1)
    for _ in range(3):
        broker.withdraw(broker.call(b"x"), 0.0)
    assert (broker.job_registry.present, broker.job_registry.memory.payloads) == (0, 0)


@pytest.mark.parametrize("priority", [-1, 10])
def test_priority_out_of_range_cannot_be_wished(priority: int) -> None:
    with pytest.raises(ValueError, match="priority"):
        JobOptions(priority=priority)


def test_no_attempts_cannot_be_wished() -> None:
    with pytest.raises(ValueError, match="attempts 0"):
        JobOptions(attempts=0)


# -------------------------------------------------------------------- delay


def test_delayed_job_is_not_given_before_its_time(broker: CheckedBroker) -> None:
    worker = broker.worker()
    job = broker.call(delay=10.0, now=1.0)
    broker.tick(10.9)
    assert (job.state, worker.state, broker.take()) == (JobState.DELAYED, WorkerState.IDLE, [])
    broker.tick(11.0)
    assert broker.take() == [SendJob(attempt_of(job))]


def test_delayed_job_does_not_hold_the_head(broker: CheckedBroker) -> None:
    """R13."""
    broker.worker()
    delayed = broker.call(delay=10.0)
    assert broker.call().state is JobState.RUNNING
    assert delayed.state is JobState.DELAYED


def test_delayed_job_arrives_when_its_time_comes(broker: CheckedBroker) -> None:
    """D7: behind those that waited already."""
    delayed = broker.call(b"delayed", delay=10.0, now=0.0)
    waiting = broker.call(b"waiting", now=5.0)
    broker.tick(10.0)
    broker.worker(now=11.0)
    assert (waiting.state, delayed.state) == (JobState.RUNNING, JobState.WAITING)


def test_delay_is_bounded() -> None:
    """L17."""
    broker = CheckedBroker(max_delay=100.0)
    assert broker.call(delay=inf).start_at == 100.0


def test_queue_timeout_counts_from_the_end_of_the_delay(broker: CheckedBroker) -> None:
    job = broker.call(delay=10.0, queue_timeout=5.0)
    broker.tick(10.0)
    broker.tick(14.9)
    assert job.state is JobState.WAITING
    broker.tick(15.0)
    assert job.outcome is Outcome.TIMED_OUT


# -------------------------------------------------------------------- three times


def test_job_that_waits_longer_than_its_queue_timeout_is_timed_out(broker: CheckedBroker, caller: Caller) -> None:
    job = broker.call(caller=caller, queue_timeout=5.0)
    broker.tick(4.9)
    assert broker.take() == []
    broker.tick(5.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.TIMED_OUT, reason="no worker was free within 5 s")]
    assert broker.next_deadline() == inf


def test_no_patience_at_all_means_now_or_never(broker: CheckedBroker, caller: Caller) -> None:
    job = broker.call(caller=caller, queue_timeout=0.0)
    broker.tick(0.0)
    assert job.outcome is Outcome.TIMED_OUT
    broker.worker()
    assert broker.call(queue_timeout=0.0).state is JobState.RUNNING


def test_attempt_that_runs_longer_than_job_timeout_is_timed_out(broker: CheckedBroker, caller: Caller) -> None:
    """R7, D11: the attempt is cancelled and the worker is stuck."""
    worker = broker.worker()
    job = broker.call(caller=caller, job_timeout=5.0)
    attempt = attempt_of(job)
    broker.take()
    broker.tick(5.0)
    reason = "no result within 5 s"
    assert broker.take() == [
        CancelAttempt(attempt, reason),
        DeliverOutcome(caller, job, Outcome.TIMED_OUT, reason=reason),
    ]
    assert worker.state is WorkerState.STUCK


def test_life_sign_does_not_extend_the_run_time(broker: CheckedBroker) -> None:
    """R6, D1."""
    worker = broker.worker(lease=3.0)
    job = broker.call(job_timeout=5.0)
    for now in range(1, 5):
        broker.seen(worker, float(now))
        broker.tick(float(now))
    broker.take()
    broker.tick(5.0)
    assert (job.outcome, worker.state) == (Outcome.TIMED_OUT, WorkerState.STUCK)


def test_job_without_job_timeout_runs_for_as_long_as_it_likes(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.call(job_timeout=inf)
    broker.tick(1e9)
    assert job.state is JobState.RUNNING


def test_deadline_ends_a_waiting_job(broker: CheckedBroker, caller: Caller) -> None:
    job = broker.call(caller=caller, deadline=3.0, queue_timeout=5.0)
    broker.tick(3.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.TIMED_OUT, reason="its deadline passed")]


def test_deadline_ends_a_delayed_job(broker: CheckedBroker, caller: Caller) -> None:
    job = broker.call(caller=caller, deadline=3.0, delay=5.0)
    broker.tick(3.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.TIMED_OUT, reason="its deadline passed")]


def test_deadline_ends_a_running_job_whatever_attempts_it_has(broker: CheckedBroker, caller: Caller) -> None:
    worker = broker.worker()
    job = broker.call(caller=caller, deadline=3.0, job_timeout=60.0, attempts=5)
    attempt = attempt_of(job)
    broker.take()
    broker.tick(3.0)
    assert broker.take() == [
        CancelAttempt(attempt, "its deadline passed"),
        DeliverOutcome(caller, job, Outcome.TIMED_OUT, reason="its deadline passed"),
    ]
    assert worker.state is WorkerState.STUCK


def test_job_timeout_comes_before_a_later_deadline(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.call(deadline=100.0, job_timeout=5.0, attempts=2)
    broker.take()
    broker.tick(5.0)
    assert (job.state, job.spent) == (JobState.DELAYED, 1)
    broker.tick(100.0)
    assert job.outcome is Outcome.TIMED_OUT


def test_deadline_before_job_timeout_alone_judges(broker: CheckedBroker) -> None:
    broker.worker()
    job = broker.call(deadline=100.0, job_timeout=inf)
    broker.tick(99.9)
    assert job.state is JobState.RUNNING
    broker.take()
    broker.tick(100.0)
    assert job.outcome is Outcome.TIMED_OUT


def test_queue_timeout_before_the_deadline_ends_the_job(broker: CheckedBroker, caller: Caller) -> None:
    job = broker.call(caller=caller, deadline=10.0, queue_timeout=2.0)
    broker.tick(2.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.TIMED_OUT, reason="no worker was free within 2 s")]


def test_job_that_comes_after_its_deadline_is_not_started(broker: CheckedBroker, caller: Caller) -> None:
    """The deadline covers everything. Before, the worker was sent the job."""
    worker = broker.worker()
    broker.submit("s", b"x", caller, JobOptions(), 5.0, deadline=5.0)
    broker.tick(5.0)
    effects = broker.take()
    assert not [effect for effect in effects if isinstance(effect, SendJob)]
    assert [effect.outcome for effect in effects if isinstance(effect, DeliverOutcome)] == [Outcome.TIMED_OUT]
    assert worker.state is WorkerState.IDLE


# -------------------------------------------------------------------- callers who cancel, callers who go


def test_withdraw_cancels_a_waiting_job(broker: CheckedBroker, caller: Caller) -> None:
    job = broker.call(caller=caller)
    assert broker.withdraw(job, 1.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.CANCELLED, reason="withdrawn")]


def test_withdraw_cancels_a_delayed_job(broker: CheckedBroker, caller: Caller) -> None:
    job = broker.call(caller=caller, delay=5.0)
    assert broker.withdraw(job, 1.0, "not wanted")
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.CANCELLED, reason="not wanted")]


def test_withdraw_recalls_a_running_job(broker: CheckedBroker, caller: Caller) -> None:
    """D11."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller)
    assert broker.withdraw(attempt.job, 1.0)
    assert broker.take() == [
        CancelAttempt(attempt, "withdrawn"),
        DeliverOutcome(caller, attempt.job, Outcome.CANCELLED, reason="withdrawn"),
    ]
    assert worker.state is WorkerState.STUCK


def test_withdraw_of_an_ended_job_changes_nothing(broker: CheckedBroker) -> None:
    """D4, I9."""
    attempt = broker.running()
    broker.succeed(attempt, b"", 1.0)
    broker.take()
    assert not broker.withdraw(attempt.job, 2.0)
    assert (attempt.job.outcome, broker.take()) == (Outcome.DONE, [])


def test_effect_that_is_not_carried_out_yet_still_says_what_to_do(broker: CheckedBroker) -> None:
    """I7. A bug: a job that ended in the iteration of its dispatch left a SendJob with an empty payload."""
    broker.worker()
    broker.withdraw(broker.call(b"payload"), 0.0)
    assert all(
        bytes(effect.attempt.job.payload) == b"payload" for effect in broker.take() if isinstance(effect, SendJob)
    )


def test_waiting_call_whose_caller_has_gone_is_not_started(broker: CheckedBroker, caller: Caller) -> None:
    """R18, with no grace."""
    job = broker.call(caller=caller)
    broker.caller_gone(caller, 1.0)
    assert (job.outcome, broker.take(), broker.job_registry.present) == (Outcome.CANCELLED, [], 0)


@pytest.mark.parametrize("delay", [0.0, 100.0])
def test_call_whose_caller_is_away_is_kept_for_the_grace(broker: CheckedBroker, caller: Caller, delay: float) -> None:
    """R18."""
    job = broker.call(caller=caller, orphan_grace=5.0, delay=delay)
    broker.availability.caller_away(caller, 1.0)
    broker.tick(5.9)
    assert job.state is not JobState.ENDED
    broker.tick(6.0)
    assert job.outcome is Outcome.CANCELLED


def test_caller_that_has_gone_leaves_all_its_jobs_at_once(broker: CheckedBroker, caller: Caller) -> None:
    """R18, R19: waiting calls end without the grace; running and kept jobs continue."""
    broker.worker()
    running = broker.running(broker.worker("other"), caller=caller).job
    waiting = broker.call(caller=caller, orphan_grace=5.0)
    delayed = broker.call(caller=caller, delay=9.0)
    stored = broker.store(caller=caller)
    others = broker.call(caller=Caller("other"))
    broker.take()
    assert caller.open_jobs() == [running, waiting, delayed, stored]
    broker.caller_gone(caller, 1.0)
    assert [job.outcome for job in (running, waiting, delayed)] == [None, Outcome.CANCELLED, Outcome.CANCELLED]
    assert (stored.state, others.state) == (JobState.WAITING, JobState.WAITING)
    assert (caller.open_jobs(), broker.take()) == ([], [])


def test_job_is_open_until_its_outcome_is_delivered(broker: CheckedBroker, caller: Caller) -> None:
    broker.worker()
    job = broker.call(caller=caller)
    broker.succeed(attempt_of(job), b"", 1.0)
    assert (caller.open_jobs(), caller.count_open(), caller.open_job(job.id)) == ([job], 1, job)
    broker.take()
    assert (caller.open_jobs(), caller.count_open(), caller.open_job(job.id)) == ([], 0, None)


def test_open_jobs_keep_the_order_in_which_they_were_added(broker: CheckedBroker, caller: Caller) -> None:
    jobs = [broker.call() for _ in range(5)]
    for job in jobs[:4]:
        caller.add_job(job)
    caller.remove_job(jobs[0])
    caller.add_job(jobs[4])
    caller.remove_job(None)  # a submit that was refused
    assert caller.open_jobs() == jobs[1:]
    assert [caller.open_job(job.id) for job in jobs] == [None, *jobs[1:]]


def test_job_under_the_id_of_one_whose_outcome_is_on_its_way_is_another(broker: CheckedBroker, caller: Caller) -> None:
    """A bug that was: the outcome of the first took the second out of its caller's list."""
    broker.worker()
    first = broker.call(caller=caller)
    broker.succeed(attempt_of(first), b"", 1.0)
    second = broker.submit("s", b"x", caller, JobOptions(), 1.0, id=first.id)
    caller.remove_job(first)
    assert (caller.open_job(first.id), caller.open_jobs()) == (second, [second])


def test_caller_that_joins_a_job_has_it_open(broker: CheckedBroker, caller: Caller) -> None:
    """R24."""
    job = broker.call(key="k")
    assert broker.call(caller=caller, key="k") is job
    assert caller.open_jobs() == [job]


def test_running_call_whose_caller_has_gone_may_end_and_is_counted(broker: CheckedBroker, caller: Caller) -> None:
    """R19."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller)
    broker.caller_gone(caller, 1.0)
    assert attempt.job.state is JobState.RUNNING
    assert broker.succeed(attempt, b"result", 2.0)
    assert broker.take() == []
    assert (attempt.job.outcome, broker.counters.unclaimed_results) == (Outcome.DONE, 1)
    assert worker.state is WorkerState.IDLE


@pytest.mark.parametrize("way", ["fails", "is lost", "times out", "never started"])
def test_call_whose_caller_has_gone_is_not_started_again(broker: CheckedBroker, caller: Caller, way: str) -> None:
    """R18, R19."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller, attempts=3)
    broker.caller_gone(caller, 1.0)
    if way == "fails":
        broker.fail(attempt, "no", 2.0)
    elif way == "times out":
        broker.tick(60.0)
    else:
        broker.leave(worker, 2.0, "gone", unseen=[attempt] if way == "never started" else [])
    assert attempt.job.outcome is Outcome.CANCELLED
    assert not [effect for effect in broker.take() if isinstance(effect, DeliverOutcome)]


def test_job_goes_on_while_one_of_its_callers_is_there(broker: CheckedBroker, caller: Caller) -> None:
    """R18, R24."""
    other = Caller("other")
    job = broker.call(caller=caller, key="k")
    broker.call(caller=other, key="k")
    broker.caller_gone(caller, 1.0)
    broker.worker(now=2.0)
    attempt = attempt_of(job)
    broker.take()
    broker.succeed(attempt, b"result", 3.0)
    assert broker.take() == [DeliverOutcome(other, job, Outcome.DONE, b"result")]


def test_background_job_does_not_need_its_caller(broker: CheckedBroker, caller: Caller) -> None:
    """R18: unaffected."""
    job = broker.store(caller=caller)
    broker.caller_gone(caller, 1.0)
    assert job.state is JobState.WAITING
    broker.worker(now=2.0)
    assert job.state is JobState.RUNNING


def test_stranger_who_goes_takes_no_job_along(broker: CheckedBroker) -> None:
    job = broker.call()
    broker.caller_gone(Caller("stranger"), 1.0)
    assert job.state is JobState.WAITING
