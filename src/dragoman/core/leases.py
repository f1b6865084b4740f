"""Leases: when a silent, stuck or detached worker is removed, and when expiry must check a worker."""

from __future__ import annotations

from dragoman.core.infinity import inf
from dragoman.core.model import Worker


def worker_deadline(worker: Worker) -> float:
    """Return the time at which this worker, or an attempt it runs, must be checked."""
    due = lease_expired_at(worker)
    for attempt in worker.running.values():
        due = min(due, attempt.over_at)
    return due


def lease_expired_at(worker: Worker) -> float:
    """Return the time at which the worker is removed if it stays silent. Only a heartbeat moves it (R6)."""
    lease = lease_of(worker)
    due = worker.seen + lease
    if worker.stuck:
        due = min(due, stuck_since(worker) + worker.profile.stuck_timeout)
    if worker.away_since != inf and lease == inf:  # no other limit applies to it
        due = min(due, worker.away_since + worker.profile.detach_timeout)
    return due


def lease_of(worker: Worker) -> float:
    """Return the seconds of silence that are allowed to the worker now (D5)."""
    profile = worker.profile
    return inf if profile.silent_while_busy and (worker.running or worker.stuck) else profile.lease


def stuck_since(worker: Worker) -> float:
    """Return the time since which its oldest stuck attempt is stuck; inf: none."""
    for attempt in worker.stuck.values():
        return attempt.stuck_since
    return inf
