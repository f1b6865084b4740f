"""Large payloads of jobs that have ended are dropped; jobs with small ones cost no statement."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from dragoman.core.model import Job
from dragoman.store.commit import Commit
from dragoman.store.large_payloads import LARGE, LargePayloads

from .disk import Disk
from .world import Setup, until

SMALL = b"x"
BIG = b"x" * (LARGE + 1)


def row(number: int, payload: object) -> tuple[object, ...]:
    return (number, b"i" * 16, "s", "{}", 1.0, None, None, None, None, None, payload)


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
    setup = Setup(tmp_path)
    small, big = setup.enqueue(SMALL), setup.enqueue(BIG)
    setup.settle()
    if restart:
        setup.close()
        setup = Setup(tmp_path, seed="again")
        setup.load()
    setup.worker(capacity=2)
    setup.loop.run_rest()
    setup.settle()
    while len(setup.given()) < 2:
        setup.loop.run_one()
        setup.settle()
    for give in setup.given():
        setup.broker.succeed(give.attempt, b"", setup.now)
    setup.settle()
    setup.close()
    file = apsw.Connection(str(tmp_path / "store.db"))
    found = dict(file.execute("SELECT id, length(payload) FROM job").fetchall())
    file.close()
    assert found == {small.id: len(SMALL), big.id: 0}


def end_and_retry(setup: Setup, job: Job) -> Job:
    """Let the job fail for good and retry it, in one commit."""
    assert job.attempt is not None
    setup.broker.fail(job.attempt, "no", setup.now)
    retried = setup.broker.operator.retry(job, setup.now)
    assert retried is not None
    assert (job.quarantined, job.retried_as) == (False, retried.id)
    setup.settle()
    return retried


@pytest.mark.parametrize("restart", [False, True])
def test_job_that_ends_and_is_retried_in_one_commit_is_stored_in_quarantine(tmp_path: Path, restart: bool) -> None:
    """A bug: the store had it as a job that ended otherwise, and dropped its payload."""
    setup = Setup(tmp_path)
    id = setup.enqueue(BIG, attempts=1).id
    setup.settle()
    if restart:  # the payload is in the file only
        setup = setup.restarted()
    setup.worker()
    setup.broker.operator.pause("s")  # the retry waits
    retried = end_and_retry(setup, setup.broker.jobs[id])
    setup = setup.restarted()
    first, second = setup.broker.jobs[id], setup.broker.jobs[retried.id]
    assert (first.quarantined, first.retried_as, second.retry_of) == (False, second.id, first.id)
    setup.worker()
    assert setup.given_payloads() == [BIG]
    setup.close()
    file = apsw.Connection(str(tmp_path / "store.db"))
    found = file.execute("SELECT quarantined, length(payload) FROM job JOIN fate USING (number) WHERE id = ?", (id,))
    assert found.fetchall() == [(1, len(BIG))]
    file.close()


@pytest.mark.parametrize("keep", [None, 0.0])
def test_job_whose_retry_is_refused_in_the_commit_in_which_it_ends_stays_in_quarantine(
    tmp_path: Path, keep: float | None
) -> None:
    """A bug: after a restart it could not be retried, or was gone."""
    disk = Disk("a disk that is full")
    setup = Setup(tmp_path, vfs=disk.name)
    setup.worker()
    job = setup.enqueue(BIG, attempts=1, keep=keep)
    setup.settle()

    def is_full() -> None:
        raise apsw.exception_for(apsw.SQLITE_FULL)

    disk.before_write = is_full
    retried = end_and_retry(setup, job)
    assert retried.id not in setup.broker.jobs
    assert (job.quarantined, job.retried_as) == (True, None)
    disk.before_write = lambda: None
    until(lambda: setup.store.problem is None)
    setup = setup.restarted()
    disk.unregister()
    (found,) = setup.broker.jobs.values()
    assert (found.id, found.quarantined) == (job.id, True)
    assert setup.broker.operator.retry(found, setup.now) is not None
    setup.worker()
    assert setup.given_payloads() == [BIG]
    setup.close()
