"""Score of a worker by which lists put those first that need attention."""

from __future__ import annotations

from typing import Final

from dragoman.core.infinity import inf
from dragoman.core.leases import lease_of
from dragoman.core.model import Worker
from dragoman.core.states import BACKING_OFF, BUSY, DETACHED, DRAINING, IDLE, STARTING, STUCK, WorkerState

SILENT: Final = 0.6  # share of the lease after which a worker with jobs needs attention

# Severity of the states of workers, the highest first.
SEVERITIES: Final[dict[WorkerState, float]] = {
    STUCK: 6.0,
    DETACHED: 5.0,
    BACKING_OFF: 3.0,
    DRAINING: 2.0,
    STARTING: 1.0,
    BUSY: 0.0,
    IDLE: 0.0,
}
SILENT_SEVERITY: Final = 4.0
STATE_SEVERITIES: Final = {state.value: severity for state, severity in SEVERITIES.items()}


def worker_need(worker: Worker, at: float) -> float:
    """Return the need of a worker: first its state, then the silence while it has jobs, then its oldest job."""
    oldest = oldest_attempt(worker, at)
    severity = SEVERITIES.get(worker.state, 0.0)
    if worker.running:
        silence = silent_share(worker, at)
        if silence > SILENT:
            severity = max(severity, SILENT_SEVERITY)
        return severity * 1e3 + silence * 100.0 + min(oldest, 9e4) / 1e3
    return severity * 1e3


def silent_share(worker: Worker, at: float) -> float:
    """Return the seconds since the worker's last message as a share of its lease; 0 without a lease."""
    lease = lease_of(worker)
    return max(0.0, at - worker.seen) / lease if 0.0 < lease < inf else 0.0


def oldest_attempt(worker: Worker, at: float) -> float:
    """Return the seconds that the oldest job of a worker has run; 0 if it has none."""
    return max((at - attempt.given for attempt in worker.running.values()), default=0.0)
