"""Detached workers, for the tests of the core."""

from __future__ import annotations

from dragoman.core.model import Attempt, Worker

from .world import Caller, CheckedBroker


def away(broker: CheckedBroker, *services: str, now: float = 0.0, **profile: object) -> Worker:
    """A worker that was idle and is detached."""
    worker = broker.worker(*services, now=now, **profile)
    broker.availability.detach(worker, now)
    return worker


def away_busy(broker: CheckedBroker, caller: Caller | None = None, **profile: object) -> Attempt:
    """Return the attempt of a worker that was detached at once, at time 0."""
    attempt = broker.running(broker.worker(**profile), caller=caller, job_timeout=1_000.0)
    broker.availability.detach(attempt.worker, 0.0)
    return attempt


def idle_lists(broker: CheckedBroker) -> list[Worker]:
    return [worker for each in broker.worker_registry.services.values() for worker in (*each.idle, *each.held_back)]
