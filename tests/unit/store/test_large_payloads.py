"""Large payloads of jobs that have ended are dropped; jobs with small ones cost no statement."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from dragoman.core.model import Job
from dragoman.store.commit import Commit
from dragoman.store.large_payloads import LARGE, LargePayloads

from .disk import Disk
from .world import House, until

SMALL = b"x"
BIG = b"x" * (LARGE + 1)


def row(number: int, payload: object) -> tuple[object, ...]:
    return (number, b"i" * 16, "s", "{}", 1.0, None, None, None, payload)


def fate(number: int, outcome: str | None = "done", quarantined: int = 0) -> tuple[object, ...]:
    return (number, None, 0, 0, None, None, None, None, None, outcome, None, quarantined, None, None, 0)


def group(*jobs: tuple[object, ...], ended: tuple[tuple[object, ...], ...] = ()) -> Commit:
    made = Commit()
    made.jobs += jobs
    for each in ended:
        made.add_status(int(str(each[0])), each)
    return made


def test_only_large_payloads_are_dropped() -> None:
    large = LargePayloads(0)
    assert large.dropped_by(group(row(1, SMALL), row(2, BIG), row(3, bytearray(BIG)))) == []
    assert large.dropped_by(group(ended=(fate(1), fate(2), fate(3)))) == [2, 3]


def test_payload_is_kept_while_the_job_may_be_tried_again() -> None:
    large = LargePayloads(0)
    large.dropped_by(group(row(1, BIG), row(2, BIG)))
    assert large.dropped_by(group(ended=(fate(1, None), fate(2, "failed", 1)))) == []
    assert large.dropped_by(group(ended=(fate(1), fate(2)))) == [1, 2]


def test_job_may_come_and_end_in_one_group() -> None:
    assert LargePayloads(0).dropped_by(group(row(1, BIG), ended=(fate(1),))) == [1]


def test_payload_of_an_earlier_run_or_of_another_job_may_be_large() -> None:
    large = LargePayloads(7)
    large.dropped_by(group(row(8, 3), row(9, SMALL)))
    assert large.dropped_by(group(ended=(fate(7), fate(8), fate(9)))) == [7, 8]


def test_dropped_and_erased_payloads_are_forgotten() -> None:
    large = LargePayloads(0)
    large.dropped_by(group(row(1, BIG), row(2, BIG)))
    ends = group(ended=(fate(1),))
    ends.add_erased(2)
    large.forget(ends, large.dropped_by(ends))
    assert large.dropped_by(group(ended=(fate(1), fate(2)))) == []


@pytest.mark.parametrize("restart", [False, True])
def test_store_drops_the_large_payload_of_a_job_that_is_done(tmp_path: Path, restart: bool) -> None:
    house = House(tmp_path)
    small, big = house.enqueue(SMALL), house.enqueue(BIG)
    house.settle()
    if restart:
        house.close()
        house = House(tmp_path, seed="again")
        house.load()
    house.worker(capacity=2)
    house.loop.run_rest()
    house.settle()
    while len(house.given()) < 2:
        house.loop.run_one()
        house.settle()
    for give in house.given():
        house.broker.succeed(give.attempt, b"", house.now)
    house.settle()
    house.close()
    file = apsw.Connection(str(tmp_path / "store.db"))
    found = dict(file.execute("SELECT id, length(payload) FROM job").fetchall())
    file.close()
    assert found == {small.id: len(SMALL), big.id: 0}


def end_and_retry(house: House, job: Job) -> Job:
    """Let the job fail for good and retry it, in one commit."""
    assert job.attempt is not None
    house.broker.fail(job.attempt, "no", house.now)
    retried = house.broker.operator.retry(job, house.now)
    assert retried is not None
    assert (job.quarantined, job.retried_as) == (False, retried.id)
    house.settle()
    return retried


@pytest.mark.parametrize("restart", [False, True])
def test_job_that_ends_and_is_retried_in_one_commit_is_stored_in_quarantine(tmp_path: Path, restart: bool) -> None:
    """A bug: the store had it as a job that ended otherwise, and dropped its payload."""
    house = House(tmp_path)
    id = house.enqueue(BIG, attempts=1).id
    house.settle()
    if restart:  # the payload is in the file only
        house = house.restarted()
    house.worker()
    house.broker.operator.pause("s")  # the retry waits
    retried = end_and_retry(house, house.broker.jobs[id])
    house = house.restarted()
    first, second = house.broker.jobs[id], house.broker.jobs[retried.id]
    assert (first.quarantined, first.retried_as, second.retry_of) == (False, second.id, first.id)
    house.worker()
    assert house.given_payloads() == [BIG]
    house.close()
    file = apsw.Connection(str(tmp_path / "store.db"))
    found = file.execute("SELECT quarantined, length(payload) FROM job JOIN fate USING (number) WHERE id = ?", (id,))
    assert found.fetchall() == [(1, len(BIG))]
    file.close()


@pytest.mark.parametrize("keeps_outcome", [True, False])
def test_job_whose_retry_is_refused_in_the_commit_in_which_it_ends_stays_in_quarantine(
    tmp_path: Path, keeps_outcome: bool
) -> None:
    """A bug: after a restart it could not be retried, or was gone."""
    disk = Disk("a disk that is full")
    house = House(tmp_path, vfs=disk.name)
    house.worker()
    job = house.enqueue(BIG, attempts=1, keeps_outcome=keeps_outcome)
    house.settle()

    def is_full() -> None:
        raise apsw.exception_for(apsw.SQLITE_FULL)

    disk.before_write = is_full
    retried = end_and_retry(house, job)
    assert retried.id not in house.broker.jobs
    assert (job.quarantined, job.retried_as) == (True, None)
    disk.before_write = lambda: None
    until(lambda: house.store.problem is None)
    house = house.restarted()
    disk.unregister()
    (found,) = house.broker.jobs.values()
    assert (found.id, found.quarantined) == (job.id, True)
    assert house.broker.operator.retry(found, house.now) is not None
    house.worker()
    assert house.given_payloads() == [BIG]
    house.close()
