"""Pause and resume, draining a worker, and the end of the broker."""

from __future__ import annotations

import pytest

from dragoman.core.effects import DeliverOutcome, Effect, RemoveWorker, SendJob
from dragoman.core.options import JobOptions
from dragoman.core.states import JobState, Outcome, RefusalReason, RemovalReason, WorkerState

from .world import Caller, CheckedBroker, attempt_of

DRAINED = "draining: the broker is about to stop"


def of_kind(effects: list[Effect], kind: type[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


# -------------------------------------------------------------------- pause and resume


def test_paused_service_hands_out_nothing_and_jobs_go_on_arriving(broker: CheckedBroker) -> None:
    worker = broker.worker()
    broker.operator.pause("s")
    job = broker.call()
    assert (job.state, worker.state, broker.take()) == (JobState.WAITING, WorkerState.IDLE, [])


def test_resumed_service_hands_out_what_waits_in_order(broker: CheckedBroker) -> None:
    """I6, D7."""
    broker.worker(capacity=2)
    broker.operator.pause("s")
    jobs = [broker.call(now=float(number)) for number in range(3)]
    broker.operator.resume("s", 5.0)
    assert broker.take() == [SendJob(attempt_of(job)) for job in jobs[:2]]


def test_pause_touches_neither_running_jobs_nor_other_services(broker: CheckedBroker, caller: Caller) -> None:
    """R13."""
    worker = broker.worker("s", "other")
    attempt = broker.running(worker, caller=caller)
    broker.operator.pause("s")
    waiting = broker.call(service="s")
    other = broker.call(service="other")
    broker.succeed(attempt, b"result", 1.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.DONE, b"result"), SendJob(attempt_of(other))]
    assert waiting.state is JobState.WAITING


def test_job_that_comes_back_to_a_paused_service_waits(broker: CheckedBroker) -> None:
    worker, _ = broker.worker(), broker.worker()
    attempt = broker.running(worker)
    broker.operator.pause("s")
    broker.leave(worker, 1.0, "gone", unseen=[attempt])
    assert (attempt.job.state, broker.take()) == (JobState.WAITING, [])


def test_time_runs_while_a_service_is_paused(broker: CheckedBroker) -> None:
    broker.worker()
    broker.operator.pause("s")
    job = broker.call(queue_timeout=5.0)
    broker.tick(5.0)
    assert job.outcome is Outcome.TIMED_OUT


def test_pause_and_resume_may_be_said_twice_and_of_the_unknown(broker: CheckedBroker) -> None:
    broker.operator.resume("nobody", 0.0)
    assert broker.operator.pause("s") is broker.operator.pause("s")
    broker.operator.resume("s", 0.0)
    broker.operator.resume("s", 0.0)
    assert broker.take() == []


# -------------------------------------------------------------------- draining a worker


@pytest.mark.parametrize("starting", [False, True])
def test_worker_that_holds_nothing_is_dismissed_at_once(broker: CheckedBroker, starting: bool) -> None:
    worker = broker.starting() if starting else broker.worker()
    broker.availability.drain(worker, 1.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.DRAINED, "drained")]
    assert worker.state is WorkerState.GONE


def test_busy_worker_finishes_and_is_then_dismissed(broker: CheckedBroker, caller: Caller) -> None:
    """R58: the result first."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller)
    waiting = broker.call(now=0.5)
    broker.availability.drain(worker, 1.0)
    broker.availability.drain(worker, 1.5)
    assert (broker.take(), worker.state) == ([], WorkerState.DRAINING)
    broker.succeed(attempt, b"result", 2.0)
    assert broker.take() == [
        DeliverOutcome(caller, attempt.job, Outcome.DONE, b"result"),
        RemoveWorker(worker, RemovalReason.DRAINED, "drained"),
    ]
    assert waiting.state is JobState.WAITING


def test_draining_worker_of_several_slots_is_dismissed_after_the_last(broker: CheckedBroker) -> None:
    worker = broker.worker(capacity=3)
    attempts = [broker.running(worker) for _ in range(2)]
    broker.availability.drain(worker, 1.0)
    broker.call(now=1.0)
    broker.succeed(attempts[0], b"", 2.0)
    assert (of_kind(broker.take(), RemoveWorker), worker.state) == ([], WorkerState.DRAINING)
    broker.fail(attempts[1], "no", 3.0)
    assert of_kind(broker.take(), RemoveWorker) == [RemoveWorker(worker, RemovalReason.DRAINED, "drained")]


def test_worker_that_stays_is_not_dismissed_and_gets_nothing(broker: CheckedBroker) -> None:
    worker = broker.worker()
    attempt = broker.running(worker)
    broker.availability.drain(worker, 1.0, stays=True)
    broker.succeed(attempt, b"result", 2.0)
    job = broker.call(now=3.0)
    assert not broker.idle(worker, 4.0)
    assert of_kind(broker.take(), RemoveWorker) == []
    assert (worker.state, job.state) == (WorkerState.DRAINING, JobState.WAITING)
    broker.availability.drain(worker, 5.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.DRAINED, "drained")]


@pytest.mark.parametrize("proof", ["late result", "idle"])
def test_stuck_worker_is_dismissed_when_it_proves_itself_free(broker: CheckedBroker, proof: str) -> None:
    """D11."""
    worker = broker.worker()
    attempt = broker.running(worker)
    broker.withdraw(attempt.job, 1.0)
    broker.take()
    broker.availability.drain(worker, 2.0)
    assert (broker.take(), worker.state) == ([], WorkerState.DRAINING)
    if proof == "idle":
        broker.idle(worker, 3.0)
    else:
        broker.succeed(attempt, b"late", 3.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.DRAINED, "drained")]


def test_draining_worker_whose_job_times_out_has_still_to_prove_itself(broker: CheckedBroker) -> None:
    """D11, R7."""
    worker = broker.worker()
    attempt = broker.running(worker)
    broker.availability.drain(worker, 1.0)
    broker.tick(60.0)
    assert worker.state is WorkerState.DRAINING
    broker.take()
    broker.succeed(attempt, b"late", 61.0)
    assert broker.take() == [RemoveWorker(worker, RemovalReason.DRAINED, "drained")]


def test_draining_worker_that_falls_silent_is_lost(broker: CheckedBroker) -> None:
    worker = broker.worker(lease=5.0)
    attempt = broker.running(worker)
    broker.availability.drain(worker, 1.0)
    broker.tick(5.0)
    assert (worker.state, attempt.job.outcome) == (WorkerState.GONE, Outcome.LOST)


def test_worker_drained_at_once_is_killed_and_its_job_follows_the_rule(broker: CheckedBroker, caller: Caller) -> None:
    """D8."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller)
    broker.availability.drain(worker, 1.0, at_once=True)
    assert broker.take() == [
        RemoveWorker(worker, RemovalReason.KILLED, "killed by an operator"),
        DeliverOutcome(caller, attempt.job, Outcome.LOST, reason="its worker was killed by an operator"),
    ]


def test_job_of_a_killed_worker_is_tried_again_while_attempts_remain(broker: CheckedBroker) -> None:
    """D8."""
    worker = broker.worker()
    attempt = broker.running(worker, attempts=2)
    broker.availability.drain(worker, 1.0)
    broker.availability.drain(worker, 2.0, at_once=True)
    assert (attempt.job.state, worker.state) == (JobState.DELAYED, WorkerState.GONE)


@pytest.mark.parametrize("at_once", [False, True])
def test_worker_that_has_gone_is_not_drained(broker: CheckedBroker, at_once: bool) -> None:
    worker = broker.worker()
    broker.leave(worker, 1.0, "gone")
    broker.availability.drain(worker, 2.0, at_once=at_once)
    assert broker.take() == []


# -------------------------------------------------------------------- the end of the broker


def test_closing_broker_refuses_new_jobs(broker: CheckedBroker, caller: Caller) -> None:
    broker.worker()
    broker.operator.close(1.0)
    assert broker.submit("s", b"x", caller, JobOptions(), 2.0) is None
    assert broker.take() == [
        DeliverOutcome(caller, None, Outcome.REFUSED, reason=DRAINED, refusal=RefusalReason.DRAINING)
    ]


@pytest.mark.parametrize("delay", [0.0, 5.0])
def test_closing_broker_refuses_waiting_calls(broker: CheckedBroker, caller: Caller, delay: float) -> None:
    job = broker.call(caller=caller, delay=delay)
    broker.operator.close(1.0)
    assert broker.take() == [
        DeliverOutcome(caller, job, Outcome.REFUSED, reason=DRAINED, refusal=RefusalReason.DRAINING)
    ]
    assert broker.job_registry.present == 0


def test_closing_broker_lets_running_jobs_end(broker: CheckedBroker, caller: Caller) -> None:
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller)
    broker.operator.close(1.0)
    broker.operator.close(1.5)
    assert broker.take() == []
    broker.succeed(attempt, b"result", 2.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.DONE, b"result")]
    assert worker.state is WorkerState.IDLE


def test_closing_broker_keeps_waiting_background_jobs_and_starts_none(broker: CheckedBroker) -> None:
    """I3: they stay in the store."""
    waiting, delayed, unsaved = broker.store(), broker.store(delay=5.0), broker.call(durable=True)
    broker.operator.close(1.0)
    broker.take()
    broker.save_all(2.0)
    broker.worker(now=3.0)
    broker.tick(10.0)
    assert not of_kind(broker.take(), SendJob)
    assert {job.state for job in (waiting, delayed, unsaved)} == {JobState.WAITING}


def test_job_not_yet_started_goes_back_when_the_broker_closes(broker: CheckedBroker, caller: Caller) -> None:
    """without spending an attempt; a call is refused, a background job stays."""
    worker = broker.worker(capacity=2)
    call = broker.running(worker, caller=caller)
    stored = attempt_of(broker.store())
    broker.take()
    broker.operator.close(1.0)
    broker.leave(worker, 2.0, "gone", unseen=[call, stored])
    assert broker.take() == [
        DeliverOutcome(caller, call.job, Outcome.REFUSED, reason=DRAINED, refusal=RefusalReason.DRAINING)
    ]
    assert (stored.job.state, stored.job.spent) == (JobState.WAITING, 0)


@pytest.mark.parametrize(("way", "outcome"), [("fail", Outcome.FAILED), ("leave", Outcome.LOST)])
def test_call_is_not_tried_again_when_the_broker_closes(broker: CheckedBroker, way: str, outcome: Outcome) -> None:
    worker = broker.worker()
    attempt = broker.running(worker, attempts=5)
    broker.operator.close(1.0)
    if way == "fail":
        broker.fail(attempt, "no", 2.0)
    else:
        broker.leave(worker, 2.0, "gone")
    assert attempt.job.outcome is outcome


def test_call_that_was_tried_is_refused_without_a_kind_when_the_broker_closes(
    broker: CheckedBroker, caller: Caller
) -> None:
    """Its client would submit it at another broker as if it had never run, with all its attempts."""
    worker = broker.worker()
    attempt = broker.running(worker, caller=caller, attempts=5)
    broker.leave(worker, 1.0, "gone")
    assert (attempt.job.state, attempt.job.spent) == (JobState.DELAYED, 1)
    broker.take()
    broker.operator.close(2.0)
    assert broker.take() == [DeliverOutcome(caller, attempt.job, Outcome.REFUSED, reason=DRAINED)]


def test_abort_gives_up_what_still_runs(broker: CheckedBroker, caller: Caller) -> None:
    """D8."""
    worker = broker.worker(capacity=2)
    call = broker.running(worker, caller=caller)
    stored = attempt_of(broker.store(attempts=3))
    broker.operator.close(1.0)
    broker.take()
    broker.operator.abort(31.0)
    reason = "the broker stopped while it ran"
    effects = broker.take()
    assert of_kind(effects, DeliverOutcome) == [DeliverOutcome(caller, call.job, Outcome.LOST, reason=reason)]
    assert of_kind(effects, RemoveWorker) == [RemoveWorker(worker, RemovalReason.STOPPED, "the broker stops")]
    assert (stored.job.state, stored.job.spent) == (JobState.DELAYED, 1)
    assert (broker.worker_registry.workers, worker.state) == ({}, WorkerState.GONE)


def test_being_stopped_is_nobodys_death(broker: CheckedBroker) -> None:
    """R10: a long job that outlives three restarts that were meant is not poison."""
    job = broker.store(attempts=10)
    for now in (0.0, 100.0, 200.0):
        broker.run_until(now)
        broker.worker(now=now)
        broker.save_all(now)
        broker.take()
        broker.operator.abort(now)
    assert (job.spent, job.deaths, job.outcome) == (3, 0, None)
