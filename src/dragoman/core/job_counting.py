"""Counts of jobs by state, which `lifecycle.py` keeps with every move."""

from __future__ import annotations

from dragoman.core.model import Job
from dragoman.core.states import DELAYED, DEPENDENT, ENDED, RUNNING, JobState


def count_job(job: Job, state: JobState, change: int) -> None:
    """Change the counts of its principal and service: the job enters this state (1), or leaves it (-1)."""
    principal = job.owner.principal
    if not job.options.is_limited:
        if state is RUNNING:
            principal.taken += change
            if job.service.limits is not None:
                job.service.limits.count_taken(principal.name, job.tenant, change)
    elif state is RUNNING:
        principal.running += change
        job.service.count_running(principal.name, job.tenant, change)
    elif state is not ENDED:
        principal.waiting += change
        principal.waiting_bytes += change * len(job.payload)
        if state is DELAYED:
            job.service.count_delayed(change)
        elif state is DEPENDENT:
            job.service.count_dependent(change)
