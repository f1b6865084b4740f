"""Records attempts that have ended: in the durations of the service, the worker's own numbers, and the flow of jobs."""

from __future__ import annotations

from dragoman.core.counters import Counters
from dragoman.core.model import Attempt, Job
from dragoman.core.recipients import dialect_of
from dragoman.core.work_record import SMOOTHING


def record_done(attempt: Attempt, counters: Counters, now: float) -> None:
    """Record an attempt that delivered the result of its job. Runs for every job."""
    job, worker, given = attempt.job, attempt.worker, attempt.given
    job.service.ran.observe(now - given)
    worker.mean_run += SMOOTHING * (now - given - worker.mean_run) if worker.done else now - given
    worker.done += 1
    cell = worker.flow.get(job.caller_dialect)
    if cell is None:
        worker.flow = counters.flow_to(dialect_of(worker.recipient))
        cell = counters.flow_cell(job.caller_dialect, dialect_of(worker.recipient))
    cell.count += 1
    cell.broker_time += given - job.arrival
    if job.spent:
        cell.broker_time -= _earlier_runs(job)


def record_undone(attempt: Attempt, now: float) -> None:
    """Record an attempt that is used up without a result."""
    attempt.job.service.ran.observe(now - attempt.given)
    attempt.worker.undone += 1


def _earlier_runs(job: Job) -> float:
    """Return the duration of the attempts that are used up, in seconds."""
    return sum(
        each.ended - each.started for each in job.history or () if each.ended is not None and each.started is not None
    )
