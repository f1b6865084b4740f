"""A restart with the wall clock an hour ahead, an hour behind, or after half an hour: each time that is stored (R25).

All stored times are of the wall clock, because the broker's clock restarts with the machine. Downtime and a clock that
was set forward look the same; a clock that was set back must not make anything longer than it was at first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from case_tables import check_every_row
from dragoman.core.failure import Failure
from dragoman.core.model import Attempt, Job
from dragoman.core.states import JobState, Outcome

from .world import WALL, Setup

HOUR, DAY = 3_600.0, 86_400.0
SHIFTS = {"ahead": HOUR, "behind": -HOUR, "down": HOUR / 2}
BEGAN = 5.0  # time of the restart, on the clock of the second run
LONG = 2 * HOUR


def running(setup: Setup, job: Job) -> Attempt:
    setup.worker(can_resume=True)
    setup.settle()
    assert job.attempt is not None
    return job.attempt


def delayed_by_its_caller(setup: Setup) -> Job:
    return setup.enqueue(delay=LONG)


def retried_when_its_worker_says(setup: Setup) -> Job:
    job = setup.enqueue()
    setup.broker.fail(running(setup, job), "later", setup.now, Failure("Retry", "later", retry_in=LONG))
    return job


def given_back_for_a_while(setup: Setup) -> Job:
    job = setup.enqueue()
    setup.broker.attempts.give_back(running(setup, job), setup.now, delay=LONG)
    return job


def given_back_after_a_failure(setup: Setup) -> Job:
    """Its delay is of the second attempt; the first one was followed by the usual back-off."""
    job = setup.enqueue(retry_first=1.0, retry_jitter=0.0)
    attempt = running(setup, job)
    setup.broker.fail(attempt, "no", setup.now)
    setup.now += 1.0
    setup.settle()
    assert job.attempt is not None
    setup.broker.attempts.give_back(job.attempt, setup.now, delay=LONG)
    setup.now = 100.0
    return job


def given_back_and_used_up(setup: Setup) -> Job:
    job = setup.enqueue()
    setup.broker.attempts.give_back(running(setup, job), setup.now, delay=LONG, spends=True)
    return job


def backing_off(setup: Setup) -> Job:
    job = setup.enqueue(retry_first=LONG, retry_cap=LONG, retry_jitter=0.0)
    setup.broker.fail(running(setup, job), "no", setup.now)
    return job


def waiting(setup: Setup) -> Job:
    return setup.enqueue(queue_timeout=LONG)


def at_a_worker(setup: Setup) -> Job:
    job = setup.enqueue(job_timeout=LONG)
    running(setup, job)
    return job


def at_a_worker_for_a_minute(setup: Setup) -> Job:
    job = setup.enqueue(job_timeout=60.0)
    running(setup, job)
    return job


def done(setup: Setup) -> Job:
    job = setup.enqueue(keep=LONG)
    setup.broker.succeed(running(setup, job), b"result", setup.now)
    return job


def end_of_delay(job: Job) -> float:
    assert job.state is JobState.DELAYED
    return job.start_at


def end_in_queue(job: Job) -> float:
    assert job.state is JobState.WAITING
    return job.queue_due


def end_of_attempt(job: Job) -> float:
    assert job.attempt is not None
    return job.attempt.over_at


def end_of_retention(job: Job) -> float:
    return job.keep_until


def end_of_group(job: Job) -> float:
    assert job.ended is not None
    return job.ended


# State before, what is asked of it afterwards, and the seconds from the restart: ahead, behind, down.
TABLE: list[tuple[Callable[[Setup], Job], Callable[[Job], float], float, float, float]] = [
    (delayed_by_its_caller, end_of_delay, LONG - HOUR, LONG, LONG - HOUR / 2),
    (retried_when_its_worker_says, end_of_delay, LONG - HOUR, LONG, LONG - HOUR / 2),
    (given_back_for_a_while, end_of_delay, LONG - HOUR, LONG, LONG - HOUR / 2),
    (given_back_after_a_failure, end_of_delay, LONG - HOUR + 1, LONG, LONG - HOUR / 2 + 1),
    (given_back_and_used_up, end_of_delay, LONG - HOUR, LONG, LONG - HOUR / 2),
    (backing_off, end_of_delay, LONG - HOUR, LONG, LONG - HOUR / 2),
    (waiting, end_in_queue, LONG, LONG, LONG),  # it begins again
    (at_a_worker, end_of_attempt, LONG - HOUR, LONG, LONG - HOUR / 2),
    (at_a_worker_for_a_minute, end_of_attempt, 30.0, 60.0, 30.0),  # its result may be there, or on its way
    (done, end_of_retention, LONG - HOUR, LONG, LONG - HOUR / 2),
    (done, end_of_group, -HOUR, 0.0, -HOUR / 2),
]


def test_r25_a_stored_time_is_never_later_than_it_was_at_first_and_a_chosen_one_is_not_forgotten(
    tmp_path: Path,
) -> None:
    """A bug: a delay that a worker had chosen (`Retry(3600)`) was cut to the job's own back-off by every restart, in
    case the wall clock had been set back. Another: a result that was made in time was refused after a longer downtime
    than the rest of its time limit."""

    def check(arrange: Callable[[Setup], Job], found: Callable[[Job], float], shift: str, expected: float) -> None:
        folder = tmp_path / f"{arrange.__name__} {found.__name__} {shift}"
        folder.mkdir()
        setup = Setup(folder, worker_resume_timeout=30.0)
        job = arrange(setup)
        setup.settle()
        setup.close()
        again = Setup(folder, now=BEGAN, offset=WALL + 100.0 - BEGAN + SHIFTS[shift], worker_resume_timeout=30.0)
        try:
            again.load()
            assert found(again.broker.jobs[job.id]) - BEGAN == pytest.approx(expected, abs=1e-3)
        finally:
            again.close()

    check_every_row(
        check,
        [
            (arrange, found, shift, expected)
            for arrange, found, *seconds in TABLE
            for shift, expected in zip(SHIFTS, seconds, strict=True)
        ],
    )


@pytest.mark.parametrize("shift", [HOUR, 400 * DAY])
def test_r107_a_result_that_was_made_in_time_counts_after_a_longer_downtime(tmp_path: Path, shift: float) -> None:
    """It was refused as late if the broker was down, or the clock was ahead, for longer than the rest of its limit."""
    setup = Setup(tmp_path, worker_resume_timeout=30.0)
    job = setup.enqueue(job_timeout=2.0)
    token = running(setup, job).token
    setup.close()
    again = Setup(tmp_path, now=BEGAN, offset=WALL + 100.0 - BEGAN + shift, worker_resume_timeout=30.0)
    again.load()
    again.now += 29.0
    again.settle()
    attempt = again.broker.attempts.resumable[token]
    assert again.broker.succeed(attempt, b"in time", again.now)
    again.settle()
    assert again.broker.jobs[job.id].outcome is Outcome.DONE
    again.close()


def test_a_delay_that_has_passed_is_not_stored_again(tmp_path: Path) -> None:
    """A job that waits after its delay would be delayed once more when the clock is set back."""
    setup = Setup(tmp_path)
    job = retried_when_its_worker_says(setup)
    setup.settle()
    setup.broker.operator.pause("s")
    setup.now += LONG
    setup.settle()
    assert job.state is JobState.WAITING
    setup.broker.job_registry.pending_commits.save(job)
    setup.settle()
    setup.close()
    again = Setup(tmp_path, now=BEGAN, offset=WALL - DAY)
    again.load()
    assert again.broker.jobs[job.id].state is JobState.WAITING
    again.close()
