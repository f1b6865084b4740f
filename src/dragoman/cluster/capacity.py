"""The capacity of this broker, as it tells the others: its own workers and their free slots, by service and in all."""

from __future__ import annotations

from typing import Final, final

from dragoman.cluster.gossip import ServiceGossip
from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.model import Service, Worker
from dragoman.core.recipients import Recipient
from dragoman.core.states import IDLE

MOST_COUNTED: Final = 256  # idle slots of one service: more make no difference to other brokers
COUNT_EVERY: Final = 1.0  # seconds; workers that join or leave are counted at once


@final
class Counted:
    """A count of all own workers. `idle`: their free slots. A worker of several services counts once."""

    __slots__ = ("idle", "services", "workers")

    def __init__(self) -> None:
        self.workers = 0
        self.idle = 0
        self.services: dict[str, list[int]] = {}  # workers and slots of each


@final
class Capacity:
    """Counts workers for gossip. Gossip is sent up to 50 times a second, and workers are many: all of them are visited
    only when one has joined or left, and once a second, because a worker may change its services."""

    def __init__(self, broker: Broker, remote: Recipient) -> None:
        """`remote`: recipient of workers at other brokers."""
        self._broker = broker
        self._remote = remote
        self.counted = Counted()  # by the last call of `services`
        self._present = (-1, -1)  # number of workers, and the newest one, when they were counted
        self._counted_at = -inf

    def services(self, now: float) -> dict[str, ServiceGossip]:
        """Return the services that workers of this broker offer."""
        workers = self._broker.worker_registry.workers
        present = (len(workers), next(reversed(workers), 0))
        if present != self._present or now >= self._counted_at + COUNT_EVERY:
            self._present, self._counted_at = present, now
            self.counted = count_workers(self._broker, self._remote)
        return _services(self._broker, self._remote, self.counted.services)


def count_workers(broker: Broker, remote: Recipient) -> Counted:
    """Count the workers of this broker. `remote` is the recipient of workers at other brokers."""
    counted = Counted()
    takes: dict[str, bool] = {}  # by service
    for worker in broker.worker_registry.workers.values():
        if worker.recipient is remote:
            continue
        counted.workers += 1
        takes_one = False
        for service in worker.services:
            counts = counted.services.setdefault(service.name, [0, 0])
            counts[0] += 1
            counts[1] += worker.profile.capacity
            if service.name not in takes:
                takes[service.name] = _takes_jobs(service)
            takes_one = takes_one or takes[service.name]
        if takes_one:
            counted.idle += _free(worker)
    return counted


def _services(broker: Broker, remote: Recipient, workers: dict[str, list[int]]) -> dict[str, ServiceGossip]:
    services = broker.worker_registry.services
    return {
        name: ServiceGossip(count, slots, idle_slots(services[name], remote), services[name].queue.length)
        for name, (count, slots) in workers.items()
        if name in services  # else its last worker has changed its services since the count
    }


def idle_slots(service: Service, remote: Recipient, most: int = MOST_COUNTED) -> int:
    """Return the free slots of this broker's own workers of a service, at most `most`; 0 if it is paused, or if its own
    jobs wait for a worker. Those that wait because of a limit leave the slots to other brokers, which have their own
    shares of it."""
    if not _takes_jobs(service):
        return 0
    if service.idle.length >= most:  # each has a free slot, and workers at other brokers are always held back (R38)
        return most
    count = 0
    for idle in (service.idle, service.held_back):
        for worker in idle:
            if worker.recipient is not remote:
                count += _free(worker)
                if count >= most:
                    return most
    return count


def _takes_jobs(service: Service) -> bool:
    return not service.paused and (not service.queue.length or service.closed or service.queue.head() is None)


def _free(worker: Worker) -> int:
    return max(0, min(worker.free, worker.asked)) if worker.state is IDLE else 0
