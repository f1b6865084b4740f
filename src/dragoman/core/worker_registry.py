"""Workers present, the services they offer, and who is idle: longest idle first (D7)."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.core.infinity import inf
from dragoman.core.lifecycle import move_worker, settle
from dragoman.core.model import Attempt, Job, Service, Worker, WorkerId
from dragoman.core.service_names import ServiceNames
from dragoman.core.states import BUSY, DRAINING, GONE, IDLE


class WorkerRegistry(ServiceNames):
    __slots__ = ("_last_id", "workers")

    def __init__(self, priority_step: float, max_services: int, first_id: int) -> None:
        super().__init__(priority_step, max_services)
        self._last_id = first_id - 1
        self.workers: dict[WorkerId, Worker] = {}

    def next_id(self) -> WorkerId:
        """Worker numbers rise and are never used twice (R28)."""
        self._last_id += 1
        return WorkerId(self._last_id)

    def enter(self, worker: Worker, services: Iterable[Service]) -> None:
        worker.services = tuple(services)
        for service in worker.services:
            service.workers += 1
            service.is_known = True
            service.discharge()
        self.workers[worker.id] = worker

    def leave(self, worker: Worker) -> list[Attempt]:
        """Strike the worker off. Returns what it held and has not ended."""
        self.withhold(worker)
        for service in worker.services:
            service.workers -= 1
        del self.workers[worker.id]
        move_worker(worker, GONE)
        held = list(worker.running.values())
        worker.last_held = worker.held()
        worker.running.clear()
        worker.stuck.clear()
        return held

    def retire(self, worker: Worker, stays: bool = False) -> None:
        """Give the worker nothing more. `stays`: it is not dismissed when it holds nothing, unless it leaves anyway."""
        worker.stays = stays and (worker.stays or worker.state is not DRAINING)
        if worker.state is not DRAINING:
            move_worker(worker, DRAINING)
            self.withhold(worker)

    def settle(self, worker: Worker, now: float) -> bool:
        """Bring the worker's state, and its place among the idle, in line with its slots. Tells whether it is idle."""
        is_idle = settle(worker) is IDLE
        if is_idle:
            if now < worker.held_back_until:
                for service in worker.services:
                    service.held_back.append(worker)
                    service.held_back_until = min(service.held_back_until, worker.held_back_until)
            else:
                for service in worker.services:
                    if service.held_back.length:
                        service.held_back.remove(worker)
                    service.idle.append(worker)
        else:
            self.withhold(worker)
        return is_idle

    def occupy(self, worker: Worker) -> bool:
        """The worker was given a job: it is busy, or, with slots left, others come first now. Tells which."""
        worker.asked -= 1
        if len(worker.running) + len(worker.stuck) >= worker.profile.capacity:
            if worker.state is not BUSY:
                move_worker(worker, BUSY)
                self.withhold(worker)
            return False
        if worker.asked <= 0:  # a slot is free, and it does not ask
            settle(worker)
            self.withhold(worker)
            return False
        for service in worker.services:
            if not service.idle.move_to_end(worker):
                service.held_back.move_to_end(worker)
        return True

    def withhold(self, worker: Worker) -> None:
        """Take the worker off every list of the idle."""
        for service in worker.services:
            service.idle.remove(worker)
            if service.held_back.length:
                service.held_back.remove(worker)

    def pick(self, job: Job, now: float) -> Worker | None:
        """The longest idle worker of the job's service, of those it was not yet given to if there is one (R12)."""
        service = job.service
        if now >= service.held_back_until:
            self._trust_again(service, now)
        if not job.tried:
            return service.idle.first() or service.held_back.first()
        fallback: Worker | None = None
        for candidates in (service.idle, service.held_back):
            for worker in candidates:
                if worker.id not in job.tried:
                    return worker
                fallback = fallback or worker
        return fallback

    def _trust_again(self, service: Service, now: float) -> None:
        """Workers whose time of being used last is over are the longest idle of all."""
        held_back = list(service.held_back)
        held_back.reverse()
        for worker in held_back:
            if worker.held_back_until <= now:
                for each in worker.services:
                    each.held_back.remove(worker)
                    each.idle.prepend(worker)
        service.held_back_until = min((each.held_back_until for each in service.held_back), default=inf)
