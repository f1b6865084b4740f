"""Retry rules by themselves: what a job remembers, when its attempts are used up, and its retry delays."""

from __future__ import annotations

import pytest

from dragoman.core.model import Attempt, Job, JobId, Service, Token, Worker, WorkerId
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.retries import TRIED_KEPT, attempts_used_up, back_off, record_attempt, remember_tried
from dragoman.core.states import AttemptRecord, Outcome
from owners import LOCAL_OWNER


def a_job(spent: int = 0, deaths: int = 0, **job_options: object) -> Job:
    job = Job(JobId(b"j" * 16), Service("s", 60.0), b"", (), JobOptions(**job_options), 0.0, LOCAL_OWNER)
    job.spent, job.deaths = spent, deaths
    return job


def a_worker(number: int = 1, attempts: int = 1) -> Worker:
    return Worker(WorkerId(number), Recipient(), None, f"w{number}", WorkerProfile(attempts=attempts), 0.0, LOCAL_OWNER)


def test_job_remembers_each_worker_once_in_the_order_they_had_it() -> None:
    """R12."""
    job = a_job()
    for number in (3, 1, 3, 2, 1):
        remember_tried(job, a_worker(number))
    assert job.tried == (3, 1, 2)


def test_job_remembers_so_many_workers_and_forgets_the_oldest() -> None:
    """R12: what peers make it remember is bounded."""
    job = a_job()
    for number in range(TRIED_KEPT + 3):
        remember_tried(job, a_worker(number))
    assert job.tried == tuple(range(3, TRIED_KEPT + 3))


def test_ending_is_one_more_entry_of_the_history_and_ends_a_row_of_refusals() -> None:
    """R8, R9."""
    job = a_job()
    job.refusals = 7
    record_attempt(job, Attempt(job, 1, Token(b"1"), a_worker(1), 3.0, 9.0), Outcome.FAILED, "no", 4.0)
    record_attempt(job, Attempt(job, 2, Token(b"2"), a_worker(2), 5.0, 9.0), Outcome.LOST, "gone", 7.5)
    assert job.history == [
        AttemptRecord(1, "w1", Outcome.FAILED, "no", 3.0, 4.0),
        AttemptRecord(2, "w2", Outcome.LOST, "gone", 5.0, 7.5),
    ]
    assert (job.spent, job.refusals, job.tried) == (2, 0, (1, 2))


@pytest.mark.parametrize(
    ("spent", "deaths", "wished", "default", "workers", "verdict"),
    [
        (1, 0, None, 1, 1, True),
        (1, 0, None, 2, 1, False),
        (1, 0, None, 1, 2, False),
        (2, 0, None, 2, 1, True),
        (1, 0, 1, 9, 9, True),
        (3, 0, 4, 1, 1, False),
        (4, 0, 4, 1, 1, True),
        (5, 0, 50, 1, 1, True),  # max_attempts
        (4, 0, 50, 1, 1, False),
        (2, 2, 50, 1, 1, False),
        (3, 3, 50, 1, 1, True),  # max_worker_deaths
    ],
)
def test_attempts_are_spent_by_number_or_by_deaths(
    spent: int, deaths: int, wished: int | None, default: int, workers: int, verdict: bool
) -> None:
    """D8, R10, L18."""
    job = a_job(spent, deaths, attempts=wished, default_attempts=default)
    assert attempts_used_up(job, a_worker(attempts=workers), Policy(max_attempts=5, max_worker_deaths=3)) is verdict


@pytest.mark.parametrize(
    ("spent", "outcome", "jitter", "seconds"),
    [
        (1, Outcome.LOST, 0.0, 0.25),
        (1, Outcome.FAILED, 0.0, 2.0),
        (1, Outcome.TIMED_OUT, 0.0, 2.0),
        (2, Outcome.LOST, 0.0, 4.0),
        (3, Outcome.FAILED, 0.0, 8.0),
        (6, Outcome.FAILED, 0.0, 50.0),  # not 64
        (100_000, Outcome.FAILED, 0.0, 50.0),  # without an overflow
        (2, Outcome.FAILED, 1.0, 6.0),
        (2, Outcome.FAILED, -1.0, 2.0),
        (6, Outcome.FAILED, 1.0, 75.0),  # the cap varies too
        (1, Outcome.LOST, -1.0, 0.125),
    ],
)
def test_rest_doubles_up_to_the_cap_and_varies(spent: int, outcome: Outcome, jitter: float, seconds: float) -> None:
    """R11."""
    policy = Policy(retry_first=2.0, retry_delay_after_loss=0.25, retry_cap=50.0, retry_jitter=0.5)
    assert back_off(a_job(spent), outcome, policy, jitter) == pytest.approx(seconds)
