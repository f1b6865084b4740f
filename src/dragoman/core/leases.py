"""Patience with workers: when a silent or stuck one is given up, and when expiry must look at one."""

from __future__ import annotations

from dragoman.core.infinity import inf
from dragoman.core.model import Worker


def worker_deadline(worker: Worker) -> float:
    """When this worker, or something it runs, must be looked at next."""
    due = lease_expired_at(worker)
    for attempt in worker.running.values():
        due = min(due, attempt.over_at)
    return due


def lease_expired_at(worker: Worker) -> float:
    """When it is given up if nothing is heard of it. A life sign moves this, never a job's time (R6)."""
    lease = lease_of(worker)
    due = min(worker.seen + lease, stuck_since(worker) + worker.profile.stuck_timeout)
    if worker.away_since != inf and lease == inf:  # nothing else says for how long it is waited for
        due = min(due, worker.away_since + worker.profile.detach_timeout)
    return due


def lease_of(worker: Worker) -> float:
    """Seconds of silence that are allowed to it now (D5)."""
    profile = worker.profile
    return inf if profile.silent_while_busy and (worker.running or worker.stuck) else profile.lease


def stuck_since(worker: Worker) -> float:
    """When its oldest slot in doubt came into doubt."""
    for attempt in worker.stuck.values():
        return attempt.stuck_since
    return inf
