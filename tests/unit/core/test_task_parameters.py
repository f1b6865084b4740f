"""Background jobs with a parameter that their worker does not know (R267 to R269)."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from dragoman.core.extras_text import extras_of, extras_text
from dragoman.core.failure import Failure, pack_failure, unpack_failure
from dragoman.core.job_extras import JobExtras
from dragoman.core.model import Attempt, Job, Worker, WorkerId
from dragoman.core.options import WorkerProfile
from dragoman.core.restore import StoredJob, restore
from dragoman.core.states import JobState, Outcome
from dragoman.core.store_entries import StoreJob
from dragoman.core.task_parameters import (
    MOST_PARAMETERS,
    MOST_REMEMBERED,
    PATIENCE,
    ServiceParameters,
    read_declaration,
)
from dragoman.operations.why import why
from owners import LOCAL_OWNER

from .world import NOBODY, CheckedBroker, attempt_of, caller_of, principal_of

OLD, NEW = ("a", "b"), ("a", "b", "x")
SENTENCE = "dragoman.WrongArguments: t has no parameter 'x'; its parameters: a, b"


def refusal(unknown: tuple[str, ...] = ("x",), known: tuple[str, ...] = OLD) -> Failure:
    return Failure("dragoman.WrongArguments", SENTENCE.partition(": ")[2], "", inf, unknown, known)


def declaring(broker: CheckedBroker, *names: str, now: float = 0.0, **profile: Any) -> Worker:
    """A worker that has declared these parameters."""
    worker = broker.starting(now=now, **profile)
    broker.limiter.declare_parameters(worker, {"s": {"properties": {each: {} for each in names}}})
    broker.idle(worker, now)
    return worker


def refuse(broker: CheckedBroker, job: Job, now: float = 1.0, failure: Failure | None = None) -> bool:
    """The worker of the job refuses it."""
    broker.save_all(now)
    broker.take()
    found = refusal() if failure is None else failure
    return bool(broker.fail(attempt_of(job), found.sentence, now, found))


def waiting(broker: CheckedBroker, now: float = 1.0) -> Job:
    """A job of a newer caller that an older worker has refused."""
    if not broker.worker_registry.workers:
        declaring(broker, *OLD)
    job = broker.store(parameters=NEW, attempts=3)
    refuse(broker, job, now)
    broker.save_all(now)
    assert job.state is JobState.DELAYED
    return job


# -------------------------------------------------------------------- the decision


def test_job_of_a_newer_caller_waits_and_uses_no_attempt(broker: CheckedBroker) -> None:
    """R268: it was a permanent failure, so that all jobs of callers that were deployed first ended in quarantine."""
    job = waiting(broker)
    assert (job.spent, job.outcome, job.needs, job.quarantined) == (0, None, ("x",), False)


def test_job_that_a_newer_worker_has_declared_waits_whoever_its_caller_is(broker: CheckedBroker) -> None:
    """R268: a caller by HTTP or from the command line does not tell what it knows."""
    broker.leave(declaring(broker, *NEW), 0.0, "it is stopped")
    declaring(broker, *OLD)
    job = broker.store()
    refuse(broker, job)
    assert (job.state, job.needs) == (JobState.DELAYED, ("x",))


@pytest.mark.parametrize(
    ("options", "failure"),
    [
        ({}, refusal()),  # nobody has declared it: a typo
        ({"parameters": ("a", "x")}, refusal()),  # a caller that lacks a parameter of the worker is not newer
        ({"parameters": OLD}, refusal()),  # a caller that does not know the parameter itself
        ({"parameters": NEW}, refusal(("x", "y"))),  # one of two that nobody knows
        ({"parameters": NEW}, Failure("dragoman.WrongArguments", "argument 'a' of t is missing", "", inf)),
    ],
)
def test_everything_else_fails_at_once(broker: CheckedBroker, options: Any, failure: Failure) -> None:
    """R268."""
    declaring(broker, *OLD)
    job = broker.store(**options)
    refuse(broker, job, failure=failure)
    assert (job.outcome, job.quarantined, job.spent, job.reason) == (Outcome.FAILED, True, 1, failure.sentence)
    assert job.failure is not None
    assert (job.failure.is_permanent, job.failure.unknown) == (True, ())


def test_call_fails_at_once(broker: CheckedBroker) -> None:
    """R268: its caller waits for it."""
    declaring(broker, *OLD)
    job = broker.call(parameters=NEW)
    broker.take()
    broker.fail(attempt_of(job), SENTENCE, 1.0, refusal())
    assert job.outcome is Outcome.FAILED


def test_worker_that_refuses_what_it_has_declared_is_not_believed(broker: CheckedBroker) -> None:
    """R268: the job would come back to it again and again."""
    declaring(broker, *NEW)
    job = broker.store(parameters=NEW)
    refuse(broker, job)
    assert job.outcome is Outcome.FAILED


# -------------------------------------------------------------------- workers that know the parameters


def test_job_waits_for_a_worker_that_knows_and_goes_to_no_other(broker: CheckedBroker) -> None:
    """R269."""
    job = waiting(broker)
    declaring(broker, *OLD, now=2.0)
    broker.worker(now=2.0)  # it declares nothing
    broker.run_until(30.0)
    assert job.state is JobState.DELAYED
    newer = declaring(broker, *NEW, now=30.0)
    assert attempt_of(job).worker is newer
    broker.save_all(30.0)
    broker.take()
    assert broker.succeed(attempt_of(job), b"done", 31.0)
    assert (job.outcome, job.spent) == (Outcome.DONE, 0)


def test_idle_worker_that_knows_gets_the_job_at_once(broker: CheckedBroker) -> None:
    """R269."""
    declaring(broker, *OLD)
    job = broker.store(parameters=NEW)
    newer = declaring(broker, *NEW)
    refuse(broker, job)
    assert attempt_of(job).worker is newer


def test_busy_worker_that_knows_gets_the_job_when_it_is_free(broker: CheckedBroker) -> None:
    """R269: under load it would never be idle at the end of a delay. The job and the queue take turns."""
    newer = declaring(broker, *NEW)
    first: Attempt = attempt_of(broker.call())
    declaring(broker, *OLD)
    jobs = [broker.store(parameters=NEW)]
    refuse(broker, jobs[0])
    for _ in range(2):
        jobs.append(broker.store(parameters=NEW))
        refuse(broker, jobs[-1])
    queued = [broker.call(now=2.0), broker.call(now=2.0), broker.call(now=2.0)]
    broker.take()
    given: list[Job] = []
    attempt = first
    for now in (3.0, 4.0, 5.0, 6.0):
        broker.save_all(now)
        broker.take()
        broker.succeed(attempt, b"", now)
        (attempt,) = newer.running.values()
        given.append(attempt.job)
    assert given == [jobs[0], queued[1], jobs[1], queued[2]]


def test_other_jobs_pass_the_one_that_waits(broker: CheckedBroker) -> None:
    job = waiting(broker)
    other = broker.call(now=2.0)
    assert (job.state, other.state) == (JobState.DELAYED, JobState.RUNNING)


def test_job_that_needs_two_versions_goes_to_a_worker_that_knows_both(broker: CheckedBroker) -> None:
    """R269: what it needs is collected."""
    job = waiting(broker)
    newer = declaring(broker, "a", "x", now=2.0)
    assert attempt_of(job).worker is newer
    job.options = broker.call(service="other", parameters=("a", "x", "y"), durable=True).options
    refuse(broker, job, 3.0, refusal(("y",), ("a", "x")))
    assert job.needs == ("x", "y")
    declaring(broker, "a", "y", now=4.0)
    assert job.state is JobState.DELAYED
    newest = declaring(broker, "a", "x", "y", now=5.0)
    assert attempt_of(job).worker is newest


def test_paused_service_and_limits_hold_for_it_too(broker: CheckedBroker) -> None:
    job = waiting(broker)
    broker.operator.pause("s")
    declaring(broker, *NEW, now=2.0)
    assert job.state is JobState.DELAYED
    broker.operator.resume("s", 3.0)
    broker.run_until(4.0)
    assert job.state is JobState.RUNNING


def test_limit_of_its_principal_holds_for_it_too(broker: CheckedBroker) -> None:
    principal = principal_of(broker, "ci", max_running=1)
    declaring(broker, *OLD)
    job = broker.store(parameters=NEW, caller=caller_of(principal))
    refuse(broker, job)
    other = broker.call(caller=caller_of(principal), now=1.0)
    newer = declaring(broker, *NEW, now=2.0)
    assert (job.state, other.state) == (JobState.DELAYED, JobState.RUNNING)
    broker.take()
    broker.succeed(attempt_of(other), b"", 3.0)
    broker.run_until(120.0)
    assert attempt_of(job).worker is newer


def test_cancelled_job_is_given_to_nobody(broker: CheckedBroker) -> None:
    job = waiting(broker)
    broker.withdraw(job, 2.0)
    newer = declaring(broker, *NEW, now=3.0)
    assert (job.outcome, newer.running) == (Outcome.CANCELLED, {})
    assert broker.dispatch.for_knowing.count == 0


def test_retry_after_a_loss_goes_to_a_worker_that_knows_too(broker: CheckedBroker) -> None:
    """R269, R9: the attempt at the newer worker counts as any other."""
    job = waiting(broker)
    newer = declaring(broker, *NEW, now=2.0)
    broker.save_all(2.0)
    broker.take()
    broker.leave(newer, 3.0, "it died")
    broker.run_until(100.0)
    assert (job.state, job.spent) == (JobState.DELAYED, 1)
    another = declaring(broker, *NEW, now=100.0)
    assert attempt_of(job).worker is another


def test_retry_from_quarantine_is_judged_anew(broker: CheckedBroker) -> None:
    job = waiting(broker)
    broker.run_until(PATIENCE + 2.0)
    broker.save_all(PATIENCE + 2.0)
    again = broker.operator.retry(job, PATIENCE + 3.0)
    assert again is not None
    assert (again.needs, again.state) == ((), JobState.RUNNING)


# -------------------------------------------------------------------- time


def test_delay_grows_with_the_time_that_the_job_has_waited(broker: CheckedBroker) -> None:
    """R269: it is a second at first, and a minute at most."""
    job = waiting(broker)
    until = []
    for _ in range(9):
        until.append(job.start_at)
        broker.tick(job.start_at)
    assert until == [2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0, 125.0, 185.0]


def test_job_that_nobody_knows_after_a_day_fails_with_the_sentence_of_the_worker(broker: CheckedBroker) -> None:
    """R269."""
    job = waiting(broker)
    broker.run_until(PATIENCE)
    assert job.state is JobState.DELAYED
    broker.run_until(PATIENCE + 1.0)
    assert (job.outcome, job.reason, job.quarantined, job.spent) == (Outcome.FAILED, SENTENCE, True, 1)
    assert job.history is not None
    assert [each.reason for each in job.history] == [SENTENCE]
    assert broker.dispatch.for_knowing.count == 0


def test_why_names_the_worker_and_the_parameter(broker: CheckedBroker) -> None:
    worker = declaring(broker, *OLD, name="shop")
    job = waiting(broker)
    sentence = f"Worker {worker.id} (shop) does not know the parameter 'x'; it waits for a newer one."
    assert why(job, broker.plain, 2.0) == sentence


# -------------------------------------------------------------------- the store


def test_needs_are_stored_with_the_job(broker: CheckedBroker) -> None:
    """R269: with its extras, as soon as it is refused."""
    declaring(broker, *OLD)
    job = broker.store(parameters=NEW)
    broker.take()
    broker.fail(attempt_of(job), SENTENCE, 1.0, refusal())
    assert [each.rewrites for each in broker.take() if isinstance(each, StoreJob)] == [True]
    assert job.extras is not None
    assert extras_of(extras_text(job.extras)) == job.extras
    assert job.extras.needs == ("x",)


@pytest.mark.parametrize("start_at", [0.0, 50.0])
def test_after_a_restart_the_job_waits_on(broker: CheckedBroker, start_at: float) -> None:
    """R269: it went to any worker after a restart. The names that workers of the earlier run have declared are gone,
    and the job was judged before."""
    kept = StoredJob(7, broker.entropy.job_id(), "s", broker.call(durable=True, parameters=()).options, 0.0)
    kept.extras, kept.start_at, kept.delayed_since = (
        JobExtras(needs=("x",), refused_by="3", refusal="no 'x'"),
        start_at,
        0.0,
    )
    job = restore(broker.plain, kept, 10.0, NOBODY)
    old = declaring(broker, *OLD, now=11.0)
    broker.run_until(60.0)
    assert (job.state, job in [each.job for each in old.running.values()]) == (JobState.DELAYED, False)
    newer = declaring(broker, *NEW, now=70.0)
    assert attempt_of(job).worker is newer
    broker.save_all(70.0)
    broker.take()
    broker.fail(attempt_of(job), SENTENCE, 71.0, Failure("A", "b"))
    assert job.spent == 1


# -------------------------------------------------------------------- declarations


def test_declaration_ends_with_the_worker_and_its_names_are_remembered(broker: CheckedBroker) -> None:
    """R267."""
    worker = declaring(broker, *NEW)
    parameters = worker.services[0].parameters
    assert parameters is not None
    assert parameters.union() == {"properties": {"a": {}, "b": {}, "x": {}}}
    broker.leave(worker, 1.0, "it is stopped")
    assert (parameters.union(), list(parameters.remembered)) == (None, ["a", "b", "x"])


def test_declarations_of_several_workers_are_shown_as_one() -> None:
    """R267: of two that differ, the later one."""
    found = ServiceParameters()
    for number, kind in enumerate(("integer", "number"), 1):
        schema = {"type": "object", "properties": {"a": {"type": kind}, f"p{number}": {}}}
        found.declare(WorkerId(number), schema)
    assert found.union() == {"type": "object", "properties": {"a": {"type": "number"}, "p1": {}, "p2": {}}}


def test_workers_of_one_version_share_its_declaration() -> None:
    """R267: it may have 8 KiB, and there may be thousands of workers."""
    found = ServiceParameters()
    for number in range(1, 100):
        found.declare(WorkerId(number), {"properties": {"old" if number % 2 else "new": {}}})
    assert (len(found._versions), found.is_known(["new"]), found.is_known(["old", "new"])) == (2, True, False)
    for number in range(2, 100, 2):
        found.undeclare(WorkerId(number))
    assert (len(found._versions), found.is_known(["new"]), found.union()) == (1, False, {"properties": {"old": {}}})


def test_remembered_names_are_bounded() -> None:
    """R267: the latest are remembered."""
    found = ServiceParameters()
    for number in range(MOST_REMEMBERED + 5):
        found.declare(WorkerId(1), {"properties": {f"p{number}": {}}})
    assert (len(found.remembered), next(iter(found.remembered))) == (MOST_REMEMBERED, "p5")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "must be a JSON Schema object"),
        ({"type": "object"}, "must be a JSON Schema object"),
        ({"properties": {f"p{number}": {} for number in range(MOST_PARAMETERS + 1)}}, "at most 256 parameters"),
        ({"properties": {"x" * 257: {}}}, "at most 256 characters"),
        ({"properties": {"x": {"description": "y" * 8_192}}}, "at most 8192 bytes"),
    ],
)
def test_declaration_that_is_too_large_or_none_is_refused(value: object, problem: str) -> None:
    """R267."""
    with pytest.raises(ValueError, match=problem):
        read_declaration(value)


def test_refusal_survives_packing() -> None:
    """It crosses the pipe of a child process and the link between two brokers."""
    assert unpack_failure(pack_failure(refusal())) == refusal()
    many = refusal(tuple(f"parameter number {each}" for each in range(2_000)))
    assert unpack_failure(pack_failure(many)) == Failure(many.type, many.message, "", inf)


def test_worker_for_another_broker_gets_the_job_after_delays_only(broker: CheckedBroker) -> None:
    """R269: its workers are not known here. It would refuse the job each time it tells that a slot is free."""
    profile = WorkerProfile(pulls=True, is_broker=True)
    other = broker.join(NOBODY, None, "b2", ("s",), profile, 0.0, LOCAL_OWNER, held_back_until=inf)
    assert other is not None
    broker.idle(other, 0.0)
    declaring(broker, *OLD)
    job = waiting(broker)
    broker.availability.ask(other, 1, 1.5)
    assert job.state is JobState.DELAYED
    broker.run_until(2.0)
    assert attempt_of(job).worker is other
