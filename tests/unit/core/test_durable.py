"""Background jobs: acknowledgements and outcomes are sent only after the commit."""

from __future__ import annotations

import pytest

from dragoman.core.effects import CancelAttempt, DeliverOutcome, Effect, SendJob
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.states import JobState, Outcome, RefusalReason, WorkerState
from dragoman.core.store_entries import DeleteJob, StoreJob

from .world import Caller, CheckedBroker, attempt_of


def answers(effects: list[Effect]) -> list[DeliverOutcome]:
    return [effect for effect in effects if isinstance(effect, DeliverOutcome)]


def accepts(effects: list[Effect]) -> list[Acknowledge]:
    return [effect for effect in effects if isinstance(effect, Acknowledge)]


def test_background_job_is_accepted_and_started_after_the_store_has_it(broker: CheckedBroker, caller: Caller) -> None:
    """I3, R103."""
    broker.worker()
    job = broker.call(caller=caller, durable=True)
    assert broker.take() == [StoreJob(job, 1), StoreJob(job, 2)]
    broker.store_reports.saved(1, 1.0)
    assert broker.take() == [Acknowledge(caller, job)]
    broker.store_reports.saved(2, 1.0)
    assert broker.take() == [SendJob(attempt_of(job))]


def test_every_attempt_of_a_background_job_leaves_after_the_store_has_it(broker: CheckedBroker) -> None:
    """R108, I8. A bug: attempts left before their commit, so a broker that was killed in between gave the job out once
    more than it had attempts."""
    job = broker.store(attempts=2)
    broker.take()
    broker.worker()
    assert broker.take() == [StoreJob(job, 2)]
    broker.store_reports.saved(2, 1.0)
    assert broker.take() == [SendJob(attempt_of(job))]
    broker.fail(attempt_of(job), "no", 1.0)
    broker.tick(10.0)
    assert broker.take() == [StoreJob(job, 3), StoreJob(job, 4)]
    broker.store_reports.saved(4, 10.0)
    assert broker.take() == [SendJob(attempt_of(job))]


def test_attempt_whose_worker_leaves_before_the_commit_was_never_sent(broker: CheckedBroker) -> None:
    """R8: it is given to another worker and does not use up an attempt; only the newest attempt is sent."""
    first = broker.worker(name="first")
    job = broker.call(durable=True, attempts=1)
    broker.leave(first, 0.5, "it left")
    broker.worker(name="second", now=0.6)
    second = attempt_of(job)
    broker.take()
    broker.store_reports.saved(2, 1.0)
    assert [effect for effect in broker.take() if isinstance(effect, SendJob)] == []
    broker.save_all(2.0)
    assert (broker.take(), job.spent) == ([SendJob(second)], 0)


def test_attempt_whose_worker_is_detached_during_the_commit_goes_to_another(broker: CheckedBroker) -> None:
    """R64. A bug: the job was sent to a worker that was out of reach by then."""
    first = broker.worker(name="first")
    job = broker.call(durable=True, attempts=1)
    broker.availability.detach(first, 0.5)
    broker.take()
    broker.save_all(1.0)
    assert [effect for effect in broker.take() if isinstance(effect, SendJob)] == []
    second = broker.worker(name="second", now=2.0)
    broker.save_all(2.0)
    assert (SendJob(attempt_of(job)) in broker.take(), attempt_of(job).worker, job.spent) == (True, second, 0)


def test_attempt_that_cannot_be_written_is_sent_when_it_is_written(broker: CheckedBroker) -> None:
    """R101, R108: the worker stays reserved for it meanwhile."""
    job = broker.store(attempts=1)
    broker.take()
    worker = broker.worker()
    attempt = attempt_of(job)
    broker.save_all(1.0, problem="disk full")
    assert (attempt_of(job), worker.state, broker.take()) == (attempt, WorkerState.BUSY, [StoreJob(job, 2)])
    broker.store_reports.saved(2, 2.0)
    assert broker.take() == [SendJob(attempt)]
    broker.store_reports.saved(2, 3.0)
    assert broker.take() == []


def test_background_jobs_start_in_the_order_they_came_however_slow_the_store_is(broker: CheckedBroker) -> None:
    """D7: a job takes its place in the queue before it is committed, so a later one cannot overtake it."""
    first = broker.call(durable=True)
    worker = broker.worker()
    second = broker.call(durable=True)
    assert (first.state, second.state) == (JobState.RUNNING, JobState.WAITING)
    assert attempt_of(first).worker is worker


def test_delay_of_a_background_job_begins_when_it_comes(broker: CheckedBroker) -> None:
    job = broker.call(durable=True, delay=10.0)
    broker.store_reports.saved(1, 1.0)
    assert (job.state, job.start_at) == (JobState.DELAYED, 10.0)


def test_one_commit_lets_out_all_saves_up_to_it(broker: CheckedBroker) -> None:
    """R103: group commit; the order of answers is the order of commit."""
    callers = [Caller(str(number)) for number in range(4)]
    jobs = [broker.call(caller=caller, durable=True) for caller in callers]
    assert broker.take() == [StoreJob(job, number) for number, job in enumerate(jobs, start=1)]
    broker.store_reports.saved(3, 1.0)
    assert broker.take() == [Acknowledge(caller, job) for caller, job in list(zip(callers, jobs, strict=True))[:3]]
    assert [broker.job_registry.pending_commits.has_accepted(job) for job in jobs] == [True, True, True, False]


@pytest.mark.parametrize("number", [0, -5, 1])
def test_commit_that_was_told_already_lets_out_nothing(broker: CheckedBroker, number: int) -> None:
    """Hostile or repeated."""
    broker.call(durable=True)
    broker.store_reports.saved(1, 0.0)
    broker.call(durable=True)
    broker.take()
    broker.store_reports.saved(number, 1.0)
    assert broker.take() == []


def test_job_the_store_cannot_take_is_refused_and_forgotten(broker: CheckedBroker, caller: Caller) -> None:
    """R101: the caller knows, and no trace is kept."""
    worker = broker.worker()
    job = broker.call(caller=caller, durable=True, key="k")
    broker.take()
    broker.store_reports.saved(1, 1.0, problem="disk full")
    assert broker.take() == [
        DeliverOutcome(
            caller, job, Outcome.REFUSED, reason="store unavailable: disk full", refusal=RefusalReason.STORE_UNAVAILABLE
        ),
    ]
    assert (broker.jobs, worker.state, broker.job_registry.present) == ({}, WorkerState.IDLE, 0)
    assert broker.call(durable=True, key="k") is not job


def test_answer_of_a_background_job_leaves_after_the_store_has_it(broker: CheckedBroker, caller: Caller) -> None:
    """I3, R103."""
    broker.worker()
    job = broker.store(caller=caller)
    attempt = attempt_of(job)
    broker.take()
    broker.save_all()
    broker.succeed(attempt, b"result", 1.0)
    assert broker.take() == [StoreJob(job, 3)]
    broker.store_reports.saved(2, 1.0)
    assert broker.take() == []
    broker.store_reports.saved(3, 1.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.DONE, b"result")]


def test_caller_is_answered_even_if_the_store_cannot_keep_the_outcome(broker: CheckedBroker, caller: Caller) -> None:
    """I4, R104: the work is done and the caller waits; a failed store is handled by the runner."""
    broker.worker()
    job = broker.store(caller=caller)
    broker.take()
    broker.succeed(attempt_of(job), b"result", 1.0)
    broker.take()
    broker.save_all(1.0, problem="input/output error")
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.DONE, b"result")]


def test_call_does_not_wait_for_the_store(broker: CheckedBroker, caller: Caller) -> None:
    """R43, R101: calls do not depend on the store."""
    broker.call(durable=True)
    broker.worker()
    attempt = broker.running(caller=caller)
    broker.succeed(attempt, b"result", 1.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.DONE, b"result")]


def test_attempts_are_written_as_they_are_spent(broker: CheckedBroker) -> None:
    """R108: a poison job cannot reset its count by killing the machine."""
    broker.worker()
    job = broker.store(attempts=2)
    broker.take()
    broker.fail(attempt_of(job), "no", 1.0)
    assert broker.take() == [StoreJob(job, 3)]
    broker.tick(2.0)
    broker.save_all(2.0)
    assert broker.take() == [StoreJob(job, 4), SendJob(attempt_of(job))]
    broker.fail(attempt_of(job), "no", 3.0)
    assert broker.take() == [StoreJob(job, 5)]


def test_cancelled_while_unsaved_is_answered_once_and_never_started(broker: CheckedBroker, caller: Caller) -> None:
    """I4."""
    worker = broker.worker()
    job = broker.call(caller=caller, durable=True)
    assert broker.withdraw(job, 0.5)
    assert not answers(broker.take())
    broker.store_reports.saved(1, 1.0)
    broker.save_all(2.0)
    effects = broker.take()
    assert answers(effects) == [DeliverOutcome(caller, job, Outcome.CANCELLED, reason="withdrawn")]
    assert not [effect for effect in effects if isinstance(effect, SendJob)]
    assert worker.state is WorkerState.IDLE


def test_cancelled_while_unsaved_is_answered_once_even_if_the_store_fails(
    broker: CheckedBroker, caller: Caller
) -> None:
    """I4."""
    job = broker.call(caller=caller, durable=True)
    broker.withdraw(job, 0.5)
    broker.save_all(1.0, problem="disk full")
    assert answers(broker.take()) == [DeliverOutcome(caller, job, Outcome.CANCELLED, reason="withdrawn")]


def test_caller_that_goes_while_its_job_is_unsaved_is_not_told(broker: CheckedBroker, caller: Caller) -> None:
    """R18: the job is kept, the caller is gone."""
    job = broker.call(caller=caller, durable=True)
    broker.take()
    broker.caller_gone(caller, 0.5)
    broker.store_reports.saved(1, 1.0)
    assert (broker.take(), job.state) == ([], JobState.WAITING)


def test_caller_that_goes_before_the_outcome_is_saved_is_not_told(broker: CheckedBroker, caller: Caller) -> None:
    """R19. Before, the outcome was sent to a caller that the broker side had already removed."""
    broker.worker()
    job = broker.store(caller=caller)
    broker.succeed(attempt_of(job), b"result", 1.0)
    broker.take()
    broker.caller_gone(caller, 1.5)
    broker.save_all(2.0)
    assert broker.take() == []


def test_deadline_that_passes_while_the_store_is_slow_keeps_the_job_from_starting(
    broker: CheckedBroker, caller: Caller
) -> None:
    """The deadline covers everything. Before, a worker was sent a job whose caller had stopped waiting."""
    worker = broker.worker()
    job = broker.call(caller=caller, durable=True, deadline=5.0)
    broker.tick(6.0)
    broker.store_reports.saved(1, 6.0)
    broker.tick(6.0)
    broker.save_all(7.0)
    effects = broker.take()
    assert not [effect for effect in effects if isinstance(effect, SendJob)]
    assert [answer.outcome for answer in answers(effects)] == [Outcome.TIMED_OUT]
    assert (job.outcome, worker.state) == (Outcome.TIMED_OUT, WorkerState.IDLE)


def test_withdraw_of_a_running_background_job_recalls_at_once_and_answers_later(
    broker: CheckedBroker, caller: Caller
) -> None:
    broker.worker()
    job = broker.store(caller=caller)
    attempt = attempt_of(job)
    broker.take()
    broker.withdraw(job, 1.0)
    assert broker.take() == [CancelAttempt(attempt, "withdrawn"), StoreJob(job, 3)]
    broker.save_all(2.0)
    assert broker.take() == [DeliverOutcome(caller, job, Outcome.CANCELLED, reason="withdrawn")]


# -------------------------------------------------------------------- kept, and erased


def test_outcome_is_kept_for_its_time_and_then_erased(broker: CheckedBroker) -> None:
    """I3, L20."""
    broker.worker()
    job = broker.store()
    broker.succeed(attempt_of(job), b"result", 1.0)
    broker.save_all(1.0)
    broker.take()
    broker.tick(86_400.9)
    assert (broker.take(), broker.jobs) == ([], {job.id: job})
    broker.tick(86_401.0)
    assert (broker.take(), broker.jobs, broker.counters.erased) == ([DeleteJob(job)], {}, 1)


def test_outcome_of_a_call_is_not_kept(broker: CheckedBroker) -> None:
    attempt = broker.running()
    broker.succeed(attempt, b"result", 1.0)
    assert broker.jobs == {}


def test_oldest_outcomes_make_room_when_there_are_too_many_bytes() -> None:
    """L20."""
    broker = CheckedBroker(max_outcome_bytes=1_000_000)
    broker.worker()
    jobs = []
    for _ in range(3):
        jobs.append(broker.store())
        broker.succeed(attempt_of(jobs[-1]), b"r" * 400_000, 1.0)
        broker.save_all(1.0)
    assert list(broker.jobs.values()) == jobs[1:]
    assert [effect for effect in broker.take() if isinstance(effect, DeleteJob)] == [DeleteJob(jobs[0])]


def test_outcome_larger_than_all_room_is_answered_and_not_kept(caller: Caller) -> None:
    """L20, I4."""
    broker = CheckedBroker(max_outcome_bytes=1_000)
    broker.worker()
    job = broker.store(caller=caller)
    broker.succeed(attempt_of(job), b"r" * 2_000, 1.0)
    broker.save_all(1.0)
    assert answers(broker.take()) == [DeliverOutcome(caller, job, Outcome.DONE, b"r" * 2_000)]
    assert broker.jobs == {}


def test_payload_in_quarantine_counts_as_kept() -> None:
    """L20."""
    broker = CheckedBroker(max_outcome_bytes=100_000)
    broker.worker()
    jobs = [broker.store(b"p" * 60_000, attempts=1, now=float(number)) for number in range(2)]
    for number, job in enumerate(jobs):
        broker.fail(attempt_of(job), "no", 2.0 + number)
        broker.save_all(5.0)
    assert list(broker.jobs.values()) == jobs[1:]


def test_outcomes_without_bytes_are_bounded_too() -> None:
    """I5, L20. A bug: jobs with empty results were kept for a day, however many there were."""
    broker = CheckedBroker(max_outcome_bytes=100_000)
    broker.worker()
    for number in range(1_000):
        attempt = attempt_of(broker.call(key=str(number)))
        broker.take()
        broker.succeed(attempt, b"", 1.0)
    assert len(broker.jobs) < 1_000


def test_kept_outcome_does_not_keep_its_callers(broker: CheckedBroker) -> None:
    """I5. A bug: a caller, in the runner its whole connection, was referenced for as long as the outcome was kept."""
    broker.worker()
    job = broker.store()
    broker.succeed(attempt_of(job), b"result", 1.0)
    broker.save_all(1.0)
    assert job.callers == ()


def test_large_job_that_waits_for_its_commit_counts_as_unsent(broker: CheckedBroker) -> None:
    """R206: its worker has not got it, although nothing waits on the connection yet."""
    worker = broker.worker(capacity=10)
    jobs = [broker.call(bytes(3 << 20), durable=True) for _ in range(4)]
    assert [job.state for job in jobs] == [JobState.RUNNING] * 2 + [JobState.WAITING] * 2
    broker.take()
    broker.availability.measured(worker, 0, 1.5)
    assert (worker.state, worker.is_behind, worker.unsent) == (WorkerState.BUSY, True, 6 << 20)
    broker.save_all(2.0)
    broker.take()
    broker.availability.measured(worker, 6 << 20, 2.0)
    assert len(worker.running) == 2
    broker.availability.measured(worker, 1 << 20, 3.0)
    assert (len(worker.running), worker.is_behind) == (3, True), "one, and then it has too much again"
    broker.save_all(4.0)
    broker.take()
    broker.availability.measured(worker, 0, 4.0)
    assert len(worker.running) == 4
