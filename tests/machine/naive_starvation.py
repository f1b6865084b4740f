"""Starvation by nested calls, word for word as R201 defines it."""

from __future__ import annotations

from dragoman.core.broker import Broker
from dragoman.core.model import Job, Service
from dragoman.core.states import BUSY, DRAINING, RUNNING, WAITING


def naive_starved(broker: Broker) -> set[str]:
    """Return the names of the services whose waiting jobs starve. All jobs have the same owner."""
    starving = set(broker.worker_registry.services.values())
    while True:
        kept = {service for service in starving if _starves(broker, service, starving)}
        if kept == starving:
            return {service.name for service in starving if service.queue.length}
        starving = kept


def _starves(broker: Broker, service: Service, starving: set[Service]) -> bool:
    workers = [
        each
        for each in broker.worker_registry.workers.values()
        if service in each.services and each.state is not DRAINING
    ]
    if not workers or service.paused:
        return False
    return all(
        worker.state is BUSY
        and not worker.stuck
        and all(_waits(broker, each.job, starving, set()) for each in worker.running.values())
        for worker in workers
    )


def _waits(broker: Broker, job: Job, starving: set[Service], above: set[Job]) -> bool:
    for child in broker.jobs.values():
        is_child = child.extras is not None and child.extras.parent == job.id and child.callers and child not in above
        if is_child and child.state is WAITING and child.service in starving:
            return True
        if is_child and child.state is RUNNING and _waits(broker, child, starving, above | {job}):
            return True
    return False
