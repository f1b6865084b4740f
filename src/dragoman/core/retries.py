"""Retry rules: the number of attempts and the delay between them (R9 to R12). Pure functions."""

from __future__ import annotations

from typing import Final

from dragoman.core.admission import STOPPED
from dragoman.core.model import Attempt, Job, Worker
from dragoman.core.policy import Policy
from dragoman.core.recipients import dialect_of
from dragoman.core.states import LOST, AttemptRecord, Outcome

TRIED_KEPT: Final = 16  # number of workers that a job remembers (R12)


def record_attempt(job: Job, attempt: Attempt, outcome: Outcome, reason: str, now: float) -> None:
    """Count a used attempt and add it to the job's history."""
    worker = attempt.worker
    job.spent += 1
    job.refusals = 0
    if outcome is LOST and reason != STOPPED:  # a shutdown of the broker does not count as a worker's death
        job.deaths += 1
    remember_tried(job, worker)
    if job.history is None:
        job.history = []
    job.history.append(_record(job.spent, attempt, outcome, reason, now))


def record_last_attempt(job: Job, attempt: Attempt, outcome: Outcome, reason: str, now: float) -> None:
    """Add an attempt to the history whose job ended while it ran. It is not used up."""
    if job.history is None:
        job.history = []
    job.history.append(_record(attempt.number, attempt, outcome, reason, now))


def _record(number: int, attempt: Attempt, outcome: Outcome, reason: str, now: float) -> AttemptRecord:
    worker = attempt.worker
    dialect, id = worker.formerly or (dialect_of(worker.recipient), worker.id)
    return AttemptRecord(number, worker.name, outcome, reason, attempt.given, now, dialect, id)


def remember_tried(job: Job, worker: Worker) -> None:
    if worker.id not in job.tried:
        job.tried = (*job.tried, worker.id)[-TRIED_KEPT:]


def attempts_used_up(job: Job, worker: Worker, policy: Policy) -> bool:
    """True if the attempt that this worker has just used up was the last (D8, R10)."""
    return job.spent >= most_attempts(job, worker, policy) or job.deaths >= policy.max_worker_deaths


def most_attempts(job: Job, worker: Worker, policy: Policy) -> int:
    """Return the number of attempts that a job may use up, if its last worker is this one."""
    limit = job.options.attempts
    if limit is None:
        limit = max(job.options.default_attempts, worker.profile.attempts)
    return min(limit, policy.max_attempts)


def back_off(job: Job, outcome: Outcome, policy: Policy, jitter: float) -> float:
    """Return the delay before the job's next attempt (R11). `jitter` is between -1 and 1."""
    first, cap, spread = _back_off_profile(job, policy)
    if outcome is LOST and job.spent == 1:
        delay = min(policy.retry_delay_after_loss, cap)
    else:
        delay = min(cap, first * 2.0 ** min(job.spent - 1, 32))
    return delay * (1.0 + spread * jitter)


def _back_off_profile(job: Job, policy: Policy) -> tuple[float, float, float]:
    """First delay, longest delay and jitter: the job's own, or the policy's."""
    job_options = job.options
    return (
        policy.retry_first if job_options.retry_first is None else job_options.retry_first,
        policy.retry_cap if job_options.retry_cap is None else job_options.retry_cap,
        policy.retry_jitter if job_options.retry_jitter is None else job_options.retry_jitter,
    )
