"""The state of a broker, for debugging."""

from __future__ import annotations

from dragoman.core.broker import Broker


def dump(broker: Broker) -> dict[str, object]:
    """Return the broker's state for debugging: no payloads, no tokens."""
    return {
        "jobs": [
            {
                "id": job.id.hex(),
                "service": job.service.name,
                "state": job.state,
                "outcome": job.outcome,
                "spent": job.spent,
                "worker": job.attempt.worker.id if job.attempt else None,
            }
            for job in broker.jobs.values()
        ],
        "workers": [
            {
                "id": worker.id,
                "name": worker.name,
                "state": worker.state,
                "services": [service.name for service in worker.services],
                "running": [attempt.job.id.hex() for attempt in worker.running.values()],
                "stuck": [attempt.job.id.hex() for attempt in worker.stuck.values()],
            }
            for worker in broker.worker_registry.workers.values()
        ],
    }
