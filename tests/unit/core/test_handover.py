"""Attempts that move from one worker to another and stay the same attempt (R107, R119)."""

from __future__ import annotations

import pytest

from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome
from dragoman.core.handover import MoveWorker
from dragoman.core.invariants import check
from dragoman.core.model import Attempt, Caller, Job, JobId, Token, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.recipients import Effect, Recipient
from dragoman.core.restore import StoredJob, restore
from dragoman.core.rights import Principal, Rights
from dragoman.core.states import BUSY, DONE, LOST, RUNNING, STARTING
from dragoman.store.rows import status_row
from dragoman.testing.entropy import SeededEntropy
from owners import LOCAL_OWNER


class Nobody(Recipient):
    def execute(self, effect: Effect, now: float) -> None:
        raise AssertionError("effects of these tests are not executed")


def join(broker: Broker, now: float, *, capacity: int = 1, owner: Owner = LOCAL_OWNER) -> Worker:
    worker = broker.join(Nobody(), None, "w", ("s",), WorkerProfile(capacity=capacity), now, owner)
    assert worker is not None
    return worker


def running() -> tuple[Broker, Job, Attempt]:
    broker = Broker(Policy(), SeededEntropy("handover"))
    broker.idle(join(broker, 0.0), 0.0)
    job = broker.submit("s", b"x", Caller(Nobody(), LOCAL_OWNER), JobOptions(job_timeout=1000.0), 0.0)
    assert job is not None
    assert job.attempt is not None
    job.attempt.mark_sent()
    return broker, job, job.attempt


def test_a_worker_on_its_way_has_the_resume_timeout() -> None:
    broker, job, attempt = running()
    before = attempt.worker
    broker.handover.wait(attempt, Nobody(), 1.0)
    check(broker)
    assert (job.state, before.running) == (RUNNING, {})
    broker.tick(30.9)
    assert job.state is RUNNING
    broker.tick(31.1)
    check(broker)
    assert (job.outcome, job.history[0].reason if job.history else "") == (LOST, "its worker was out of reach for 30 s")


def test_a_worker_that_names_its_attempt_goes_on_with_it_for_as_long_as_it_takes() -> None:
    broker, job, attempt = running()
    broker.handover.wait(attempt, Nobody(), 1.0)
    worker = join(broker, 2.0)
    assert broker.handover.claim(worker, attempt.token, "s", 2.0)
    assert worker.state is STARTING
    broker.idle(worker, 2.1)
    check(broker)
    assert (worker.state, attempt.worker, broker.attempts.resumable) == (BUSY, worker, {})
    broker.tick(500.0)
    assert job.state is RUNNING
    assert broker.succeed(attempt, b"X", 500.0)
    check(broker)
    assert job.outcome is DONE


def test_an_attempt_that_was_given_up_is_not_claimed() -> None:
    broker, _, attempt = running()
    broker.handover.wait(attempt, Nobody(), 1.0)
    broker.tick(40.0)
    assert not broker.handover.claim(join(broker, 41.0), attempt.token, "s", 41.0)


def test_a_worker_without_the_right_to_the_service_does_not_go_on() -> None:
    """R178: the token alone is not enough."""
    broker, _, attempt = running()
    broker.handover.wait(attempt, Nobody(), 1.0)
    stranger = Owner(Principal("stranger", Rights()), "stranger")
    worker = Worker(broker.worker_registry.next_id(), Nobody(), None, "w", WorkerProfile(), 2.0, stranger)
    assert not broker.handover.claim(worker, attempt.token, "s", 2.0)
    assert attempt.token in broker.attempts.resumable


def test_an_attempt_of_another_broker_runs_like_a_job_that_was_sent() -> None:
    broker = Broker(Policy(), SeededEntropy("handover"))
    worker = join(broker, 0.0, capacity=2)
    caller = Caller(Nobody(), LOCAL_OWNER)
    broker.handover.arrive(worker, Token(b"t" * 16), broker.worker_registry.services["s"], caller, 0.0)
    broker.idle(worker, 0.1)
    check(broker)
    assert worker.free == 1
    broker.succeed(worker.running[Token(b"t" * 16)], b"X", 1.0)
    check(broker)
    (outcome,) = broker.effects
    assert isinstance(outcome, DeliverOutcome)
    assert (outcome.caller, outcome.outcome, outcome.result) == (caller, DONE, b"X")


@pytest.mark.parametrize("brought", [1, 2])
def test_a_worker_that_brings_jobs_gets_no_more_than_its_slots(brought: int) -> None:
    broker = Broker(Policy(), SeededEntropy("handover"))
    for _ in range(3):
        broker.submit("s", b"x", Caller(Nobody(), LOCAL_OWNER), JobOptions(waits=True), 0.0)
    worker = join(broker, 0.0, capacity=2)
    for number in range(brought):
        token = Token(bytes([number]) * 16)
        caller = Caller(Nobody(), LOCAL_OWNER)
        broker.handover.arrive(worker, token, broker.worker_registry.services["s"], caller, 0.0)
    broker.idle(worker, 0.1)
    check(broker)
    assert len(worker.running) == 2


def test_a_worker_is_asked_to_go() -> None:
    broker, _, attempt = running()
    broker.effects.clear()
    broker.handover.send_away(attempt.worker)
    assert broker.effects == [MoveWorker(attempt.worker)]


def test_a_restored_attempt_can_be_resumed_after_the_next_restart_too() -> None:
    """The log of a cluster is cleaned: the rows of jobs are written again."""
    broker = Broker(Policy(), SeededEntropy("handover"))
    kept = StoredJob(1, JobId(b"j" * 16), "s", JobOptions(durable=True, waits=True), 0.0)
    kept.token, kept.attempt, kept.worker, kept.can_resume = Token(b"t" * 16), 1, "w", True
    job = restore(broker, kept, 1.0, Nobody())
    assert status_row(job, 0.0)[-1] == 1
