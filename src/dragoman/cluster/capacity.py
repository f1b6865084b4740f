"""The capacity of this broker, as it tells the others: its own workers and their free slots, by service."""

from __future__ import annotations

from typing import Final

from dragoman.cluster.records import ServiceGossip
from dragoman.core.broker import Broker
from dragoman.core.model import Service, Worker
from dragoman.core.recipients import Recipient
from dragoman.core.states import IDLE

MOST_COUNTED: Final = 256  # idle slots of one service: more make no difference to other brokers


def capacity_of(broker: Broker, remote: Recipient) -> dict[str, ServiceGossip]:
    """Return the services that workers of this broker offer. `remote` is the recipient of workers at other brokers."""
    workers: dict[str, list[int]] = {}
    for worker in broker.worker_registry.workers.values():
        if worker.recipient is remote:
            continue
        for service in worker.services:
            counts = workers.setdefault(service.name, [0, 0])
            counts[0] += 1
            counts[1] += worker.profile.capacity
    services = broker.worker_registry.services
    return {
        name: ServiceGossip(count, slots, idle_slots(services[name], remote), services[name].queue.length)
        for name, (count, slots) in workers.items()
    }


def idle_slots(service: Service, remote: Recipient) -> int:
    """Return the free slots of this broker's own workers of a service, at most `MOST_COUNTED`; 0 if it is paused or at
    a limit, or if its own jobs wait."""
    if service.closed or service.queue.length:
        return 0
    count = 0
    for idle in (service.idle, service.held_back):
        for worker in idle:
            if worker.recipient is not remote:
                count += _free(worker)
                if count >= MOST_COUNTED:
                    return MOST_COUNTED
    return count


def _free(worker: Worker) -> int:
    return max(0, min(worker.free, worker.asked)) if worker.state is IDLE else 0
