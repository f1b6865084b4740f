"""Options of a listener as the core reads them: the options of its callers' jobs, and the profile of its workers.

A dialect changes with `dataclasses.replace` what its wire, or its document, says otherwise.
"""

from __future__ import annotations

from typing import Protocol

from dragoman.core.infinity import inf
from dragoman.core.options import JobOptions, WorkerProfile


class JobLimits(Protocol):
    """Limits of a job that does not bring its own. 0 seconds are no limit."""

    @property
    def job_timeout(self) -> float: ...

    @property
    def queue_timeout(self) -> float: ...

    @property
    def attempts(self) -> int | None: ...


class WorkerLimits(Protocol):
    @property
    def job_timeout(self) -> float: ...

    @property
    def stuck_timeout(self) -> float: ...


def default_job_options(options: JobLimits) -> JobOptions:
    """The options of jobs whose service exists as soon as the listener does: callers may come before workers."""
    return JobOptions(
        queue_timeout=options.queue_timeout or inf,
        job_timeout=options.job_timeout or inf,
        attempts=options.attempts,
        waits=True,
    )


def silent_worker(options: WorkerLimits, lease: float) -> WorkerProfile:
    """The profile of workers that have one thread and say nothing while they work: the time-out judges the job (D5)."""
    return WorkerProfile(
        lease=lease,
        silent_while_busy=True,
        stuck_timeout=options.stuck_timeout,
        job_timeout=options.job_timeout or inf,
    )
