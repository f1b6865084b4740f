"""Reservations: attempts of background jobs that are committed before a worker is free for them (R108)."""

from __future__ import annotations

import pytest

from dragoman.core.effects import Effect, Give
from dragoman.core.model import Job
from dragoman.core.reservations import KEPT, QUICK
from dragoman.core.states import JobState, Outcome
from dragoman.core.store_entries import Save
from dragoman.diary.records import FATE_COLUMNS, fate_row

from .world import CheckedBroker, attempt_of


def given(effects: list[Effect]) -> list[Job]:
    return [effect.attempt.job for effect in effects if isinstance(effect, Give)]


def reserved(jobs: list[Job]) -> list[bool]:
    return [job.reservation is not None for job in jobs]


def fate(job: Job) -> dict[str, object]:
    return dict(zip(FATE_COLUMNS, fate_row(job, 0.0), strict=True))


@pytest.fixture
def jobs(broker: CheckedBroker) -> list[Job]:
    """One slot. The first job has been done quickly, the second was given, the third is reserved, not yet committed."""
    jobs = [broker.store(attempts=2) for _ in range(6)]
    broker.worker()
    broker.save_all()
    broker.succeed(attempt_of(jobs[0]), b"", QUICK / 2)
    broker.save_all(QUICK)
    broker.take()
    return jobs


def test_quick_attempt_reserves_the_next_jobs_of_the_queue(broker: CheckedBroker, jobs: list[Job]) -> None:
    """At most as many as run: what a crash costs is bounded by the slots."""
    assert reserved(jobs) == [False, False, True, False, False, False]
    assert all(job.state is JobState.WAITING for job in jobs[2:])


def test_last_attempt_of_a_job_is_not_reserved(broker: CheckedBroker) -> None:
    """A crash would end the job as lost although it never ran."""
    jobs = [broker.store(attempts=1) for _ in range(3)]
    broker.worker()
    broker.save_all()
    broker.succeed(attempt_of(jobs[0]), b"", QUICK / 2)
    broker.save_all(QUICK)
    late = broker.call(durable=True, attempts=1, now=QUICK)
    assert reserved([*jobs, late]) == [False] * 4


def test_reserved_job_is_sent_without_another_commit(broker: CheckedBroker, jobs: list[Job]) -> None:
    """A bug: a slot did at most one background job per commit, which halved the throughput of quick workers."""
    token = jobs[2].reservation.token if jobs[2].reservation else None
    broker.save_all(QUICK)
    broker.succeed(attempt_of(jobs[1]), b"", QUICK)
    effects = broker.take()
    assert given(effects) == [jobs[2]]
    assert (attempt_of(jobs[2]).token, jobs[2].reservation) == (token, None)


def test_reserved_job_whose_commit_is_still_under_way_waits_for_it(broker: CheckedBroker, jobs: list[Job]) -> None:
    """I8: no attempt leaves before the store has it."""
    broker.succeed(attempt_of(jobs[1]), b"", QUICK)
    assert given(broker.take()) == []
    broker.save_all(QUICK)
    assert given(broker.take()) == [jobs[2]]
    broker.save_all(QUICK)
    assert given(broker.take()) == []


def test_reservation_is_stored_as_an_attempt_that_may_have_been_sent(broker: CheckedBroker, jobs: list[Job]) -> None:
    """The worker that it goes to is not known yet; one that can name the attempt may still deliver (R107)."""
    assert jobs[2].reservation is not None
    row = fate(jobs[2])
    assert (row["token"], row["attempt"], row["worker"], row["may_return"]) == (jobs[2].reservation.token, 1, "", 1)


def test_commit_that_accepts_a_job_carries_its_reservation(broker: CheckedBroker) -> None:
    """Without that, a job that comes would wait for two commits."""
    jobs = [broker.store(attempts=2) for _ in range(3)]
    broker.worker(capacity=2)
    broker.save_all()
    broker.succeed(attempt_of(jobs[0]), b"", QUICK / 2)
    broker.save_all(QUICK)
    assert (jobs[1].state, jobs[2].state) == (JobState.RUNNING, JobState.RUNNING)
    first, second, third = (broker.call(durable=True, attempts=2, now=QUICK) for _ in range(3))
    assert reserved([first, second, third]) == [True, True, False]


def test_reservation_that_is_not_used_is_taken_back(broker: CheckedBroker, jobs: list[Job]) -> None:
    broker.save_all(QUICK)
    assert broker.next_deadline() <= QUICK + KEPT
    broker.take()
    broker.tick(QUICK + KEPT)
    assert reserved(jobs) == [False] * 6
    assert [effect.job for effect in broker.take() if isinstance(effect, Save)] == [jobs[2]]
    assert fate(jobs[2])["token"] is None


def test_slow_attempt_reserves_nothing(broker: CheckedBroker) -> None:
    """A job of an hour must not use up the attempts of those behind it in a crash."""
    jobs = [broker.store() for _ in range(3)]
    broker.worker()
    broker.save_all()
    broker.succeed(attempt_of(jobs[0]), b"", QUICK)
    broker.save_all(QUICK)
    assert reserved(jobs) == [False] * 3


def test_calls_are_not_reserved(broker: CheckedBroker) -> None:
    job = broker.store()
    broker.worker()
    broker.save_all()
    call = broker.call()
    broker.succeed(attempt_of(job), b"", QUICK / 2)
    broker.save_all(QUICK)
    assert call.reservation is None


def test_paused_service_reserves_nothing(broker: CheckedBroker) -> None:
    jobs = [broker.store() for _ in range(3)]
    broker.worker()
    broker.save_all()
    broker.pause("s")
    broker.succeed(attempt_of(jobs[0]), b"", QUICK / 2)
    broker.save_all(QUICK)
    assert reserved(jobs) == [False] * 3


def test_reservation_that_cannot_be_written_is_taken_back(broker: CheckedBroker, jobs: list[Job]) -> None:
    broker.save_all(QUICK, problem="disk full")
    assert reserved(jobs) == [False] * 6
    broker.save_all(QUICK)
    broker.succeed(attempt_of(jobs[1]), b"", QUICK)
    assert given(broker.take()) == []
    broker.save_all(QUICK)
    assert given(broker.take()) == [jobs[2]]


def test_cancelled_job_has_no_reservation(broker: CheckedBroker, jobs: list[Job]) -> None:
    broker.withdraw(jobs[2], QUICK)
    assert (jobs[2].outcome, jobs[2].reservation) == (Outcome.CANCELLED, None)
    assert fate(jobs[2])["token"] is None
    broker.save_all(QUICK)
    broker.tick(QUICK + KEPT)


def test_stopping_broker_takes_its_reservations_back(broker: CheckedBroker, jobs: list[Job]) -> None:
    broker.save_all(QUICK)
    broker.close(QUICK)
    assert reserved(jobs) == [False] * 6
    broker.save_all(QUICK)
    broker.succeed(attempt_of(jobs[1]), b"", QUICK)
    broker.save_all(QUICK)
    assert reserved(jobs) == [False] * 6


def test_job_of_higher_priority_goes_ahead_of_reserved_ones(broker: CheckedBroker, jobs: list[Job]) -> None:
    broker.save_all(QUICK)
    urgent = broker.store(priority=9, now=QUICK)
    broker.take()
    broker.succeed(attempt_of(jobs[1]), b"", QUICK)
    assert given(broker.take()) == []
    broker.save_all(QUICK)
    assert given(broker.take()) == [urgent]
    broker.succeed(attempt_of(urgent), b"", QUICK)
    assert given(broker.take()) == [jobs[2]]
