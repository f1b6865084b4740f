"""Limits per caller: one caller cannot use up what all callers and workers share (R29, L8)."""

from __future__ import annotations

import pytest

from dragoman.core.effects import DeliverOutcome
from dragoman.core.invariants import check
from dragoman.core.model import Job
from dragoman.core.options import JobOptions
from dragoman.core.owners import SWEEP_FLOOR, Owner, Owners
from dragoman.core.states import Outcome, RefusalReason
from owners import LOCAL_OWNER

from .world import NOBODY, Caller, CheckedBroker, attempt_of

BACKGROUND = JobOptions(waits=True, durable=True)


LOCAL = LOCAL_OWNER.principal


def owner_of_calls(label: str = "this connection") -> Owner:
    return Owner(LOCAL, label)


def caller_of(owner: Owner) -> Caller:
    caller = Caller()
    caller.owner = owner
    return caller


def enqueue(broker: CheckedBroker, service: str, owner: Owner) -> Job | None:
    job: Job | None = broker.submit(service, b"x", caller_of(owner), BACKGROUND, 0.0)
    broker.save_all()
    return job


def refusal(broker: CheckedBroker) -> str:
    (answer,) = [each for each in broker.take() if isinstance(each, DeliverOutcome)]
    assert (answer.outcome, answer.refusal, answer.job) == (Outcome.REFUSED, RefusalReason.BUSY, None)
    return answer.reason


# ---------------------------------------------------------------- names that no worker has offered


def test_one_caller_cannot_take_all_names() -> None:
    """R29. A bug: a caller that enqueued to 12,000 new names used up max_services for all callers, for good."""
    broker = CheckedBroker(max_services=10, max_services_per_caller=3)
    flood, other = owner_of_calls(), owner_of_calls()
    for number in range(3):
        assert enqueue(broker, f"s{number}", flood) is not None
    broker.take()
    assert enqueue(broker, "s3", flood) is None
    assert refusal(broker) == (
        "busy: this connection has jobs for 3 names that no worker has offered; at most 3 are allowed "
        "(max_services_per_caller): start workers for them, or wait until their jobs have ended"
    )
    assert enqueue(broker, "s0", flood) is not None  # a name that exists already
    assert enqueue(broker, "mine", other) is not None
    assert broker.worker("s3").services


def test_all_callers_together_leave_room_for_names_that_workers_offer() -> None:
    """R29: a fifth of max_services."""
    broker = CheckedBroker(max_services=10, max_services_per_caller=1)
    taken = [enqueue(broker, f"s{number}", owner_of_calls()) for number in range(10)]
    assert [job is not None for job in taken] == [True] * 8 + [False] * 2
    worker = broker.starting("a", "b")
    assert broker.join(NOBODY, None, "w", ["c"], worker.profile, 0.0, LOCAL_OWNER) is None


@pytest.mark.parametrize("waits", [True, False])
def test_name_is_given_back_when_the_last_of_its_jobs_has_ended(waits: bool) -> None:
    broker = CheckedBroker(max_services_per_caller=1)
    owner = owner_of_calls()
    job_options = JobOptions(waits=True, durable=not waits)
    jobs = [broker.submit("s", b"x", caller_of(owner), job_options, 0.0) for _ in range(2)]
    broker.save_all()
    broker.withdraw(jobs[0], 0.0)
    assert (owner.names, owner.jobs) == (1, 1)
    assert enqueue(broker, "t", owner) is None
    broker.withdraw(jobs[1], 0.0)
    broker.save_all()
    assert (owner.names, owner.jobs) == (0, 0)
    assert enqueue(broker, "t", owner) is not None


def test_name_is_given_back_when_the_last_job_is_nobodys() -> None:
    """A run of a recurring job, or a job of an earlier run."""
    broker, owner = CheckedBroker(), owner_of_calls()
    mine, nobodys = enqueue(broker, "s", owner), enqueue(broker, "s", LOCAL_OWNER)
    broker.withdraw(mine, 0.0)
    assert owner.names == 1
    broker.withdraw(nobodys, 0.0)
    assert owner.names == 0


def test_name_is_given_back_when_a_worker_offers_it() -> None:
    broker, owner = CheckedBroker(max_services_per_caller=1), owner_of_calls()
    assert enqueue(broker, "s", owner) is not None
    worker = broker.worker("s")
    assert owner.names == 0
    assert enqueue(broker, "t", owner) is not None
    broker.leave(worker, 0.0, "gone")
    assert enqueue(broker, "s", owner) is not None  # it has been offered once
    assert owner.names == 1


def test_call_to_a_name_that_nobody_offers_counts_too() -> None:
    broker, owner = CheckedBroker(max_services_per_caller=1), owner_of_calls()
    assert broker.submit("s", b"x", caller_of(owner), JobOptions(waits=True), 0.0) is not None
    assert broker.submit("t", b"x", caller_of(owner), JobOptions(waits=True), 0.0) is None


# ---------------------------------------------------------------- jobs


def test_one_caller_cannot_take_the_whole_queue() -> None:
    """L8. A bug: one client enqueued 378,850 jobs within 6 s, and nothing held it back."""
    broker = CheckedBroker(max_jobs_per_caller=2)
    worker = broker.worker("s")
    flood, other = owner_of_calls(), owner_of_calls("address 192.0.2.1")
    jobs = [enqueue(broker, "s", flood) for _ in range(2)]
    broker.take()
    assert enqueue(broker, "s", flood) is None
    assert refusal(broker) == (
        "busy: this connection has 2 jobs, the maximum (max_jobs_per_caller); retry when some have ended"
    )
    assert broker.submit("s", b"x", caller_of(flood), JobOptions(), 0.0) is None  # calls count like background jobs
    assert enqueue(broker, "s", other) is not None
    assert enqueue(broker, "s", LOCAL_OWNER) is not None
    assert jobs[0] is not None
    broker.succeed(attempt_of(jobs[0]), b"", 1.0)
    assert enqueue(broker, "s", flood) is not None
    assert worker.running


def test_retry_counts_for_the_owner_of_the_first_job() -> None:
    broker, owner = CheckedBroker(max_jobs_per_caller=1), owner_of_calls()
    broker.worker("s")
    job = broker.submit("s", b"x", caller_of(owner), JobOptions(durable=True, attempts=1), 0.0)
    broker.save_all()
    broker.fail(attempt_of(job), "no", 0.0)
    broker.save_all()
    assert broker.operator.retry(job, 0.0) is not None
    assert owner.jobs == 1
    assert enqueue(broker, "s", owner) is None


def test_counts_are_checked() -> None:
    broker, owner = CheckedBroker(), owner_of_calls()
    enqueue(broker, "s", owner)
    for name in ("jobs", "names"):
        setattr(owner, name, 2)
        with pytest.raises(AssertionError, match="I5: this connection"):
            check(broker.plain)
        setattr(owner, name, 1)


# ---------------------------------------------------------------- remote addresses


def test_connections_of_one_remote_address_are_one_owner() -> None:
    owners = Owners()
    assert owners.at("192.0.2.1", LOCAL) is owners.at("192.0.2.1", LOCAL)
    assert owners.at("192.0.2.1", LOCAL) is not owners.at("192.0.2.2", LOCAL)
    assert owners.at("192.0.2.1", LOCAL).label == "address 192.0.2.1"


def test_owners_that_are_not_in_use_are_forgotten() -> None:
    owners = Owners()
    busy, connected = owners.at("busy", LOCAL), owners.at("connected", LOCAL)
    busy.jobs = connected.connections = 1
    for number in range(10 * SWEEP_FLOOR):
        owners.at(str(number), LOCAL)
        assert len(owners) <= SWEEP_FLOOR + 4
    assert (owners.at("busy", LOCAL), owners.at("connected", LOCAL)) == (busy, connected)
