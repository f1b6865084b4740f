"""Listener options for the core: the options of its callers' jobs, and the profile of its workers.

A dialect uses `dataclasses.replace` for values that its wire or its document sets otherwise.
"""

from __future__ import annotations

from typing import Protocol

from dragoman.core.infinity import inf
from dragoman.core.options import JobOptions, WorkerProfile


class JobLimits(Protocol):
    """Limits of a job without limits of its own. 0 seconds mean no limit."""

    @property
    def job_timeout(self) -> float: ...

    @property
    def queue_timeout(self) -> float: ...

    @property
    def attempts(self) -> int | None: ...


class WorkerLimits(Protocol):
    """Limits of a listener's workers."""

    @property
    def job_timeout(self) -> float: ...

    @property
    def stuck_timeout(self) -> float: ...


def default_job_options(options: JobLimits) -> JobOptions:
    """Return the options of jobs whose service exists from the start: callers may connect before workers."""
    return JobOptions(
        queue_timeout=options.queue_timeout or inf,
        job_timeout=options.job_timeout or inf,
        attempts=options.attempts,
        waits=True,
    )


def silent_worker(options: WorkerLimits, lease: float) -> WorkerProfile:
    """Return the profile of single-threaded workers, silent during a job: only the job's time-out applies (D5)."""
    return WorkerProfile(
        lease=lease,
        silent_while_busy=True,
        stuck_timeout=options.stuck_timeout,
        job_timeout=options.job_timeout or inf,
    )
