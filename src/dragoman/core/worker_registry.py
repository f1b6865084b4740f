"""Workers, the services they offer, and the idle ones: longest idle first (D7)."""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.core.hold_back import end_hold_back
from dragoman.core.lifecycle import move_worker, settle
from dragoman.core.model import Attempt, Job, Service, Worker, WorkerId
from dragoman.core.service_names import ServiceNames
from dragoman.core.states import BUSY, DRAINING, GONE, IDLE


class WorkerRegistry:
    """All workers of the broker, by id, and all services, by name."""

    def __init__(self, priority_step: float, max_services: int, first_id: int) -> None:
        self.workers: dict[WorkerId, Worker] = {}
        self.names = ServiceNames(priority_step, max_services)
        self.services = self.names.services
        self._last_id = first_id - 1

    def next_id(self) -> WorkerId:
        """Return a new worker number. Numbers rise and are never used twice (R28)."""
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
        """Remove the worker. Returns the attempts that it had not finished."""
        self.remove_from_idle(worker)
        for service in worker.services:
            service.workers -= 1
        del self.workers[worker.id]
        move_worker(worker, GONE)
        held = list(worker.running.values())
        worker.last_held = worker.held()
        worker.running.clear()
        worker.stuck.clear()
        return held

    def stop_dispatch(self, worker: Worker, stays: bool = False) -> None:
        """Give the worker no more jobs. `stays`: do not remove it once drained, unless it was already draining."""
        worker.stays = stays and (worker.stays or worker.state is not DRAINING)
        if worker.state is not DRAINING:
            move_worker(worker, DRAINING)
            self.remove_from_idle(worker)

    def settle(self, worker: Worker, now: float) -> bool:
        """Update the worker's state, and its place in the lists of idle workers. Returns whether it is idle."""
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
            self.remove_from_idle(worker)
        return is_idle

    def take_slot(self, worker: Worker) -> bool:
        """Take a slot. The worker is busy, or moves to the end of the idle lists. Returns whether it has more room."""
        worker.asked -= 1
        if len(worker.running) + len(worker.stuck) >= worker.profile.capacity:
            if worker.state is not BUSY:
                move_worker(worker, BUSY)
                self.remove_from_idle(worker)
            return False
        if worker.asked <= 0:  # a slot is free, but the worker requests no job
            settle(worker)
            self.remove_from_idle(worker)
            return False
        for service in worker.services:
            if not service.idle.move_to_end(worker):
                service.held_back.move_to_end(worker)
        return True

    def remove_from_idle(self, worker: Worker) -> None:
        """Remove the worker from every list of idle workers."""
        for service in worker.services:
            service.idle.remove(worker)
            if service.held_back.length:
                service.held_back.remove(worker)

    def pick(self, job: Job, now: float) -> Worker | None:
        """Return the longest idle worker of the job's service; a worker that has not had this job comes first (R12). A
        job that needs parameters goes to workers that have declared them (R269); some worker has had it."""
        service = job.service
        if now >= service.held_back_until:
            end_hold_back(service, now)
        if not job.tried:
            return service.idle.first() or service.held_back.first()
        fallback: Worker | None = None
        needs = job.needs
        if needs and (service.parameters is None or not service.parameters.is_known(needs)):
            return _first_broker(service)
        for candidates in (service.idle, service.held_back):
            for worker in candidates:
                if needs and not worker.profile.is_broker and not declares(worker, service, needs):
                    continue
                if worker.id not in job.tried:
                    return worker
                fallback = fallback or worker
        return fallback

    def has_knowing(self, service: Service, needs: tuple[str, ...]) -> bool:
        """True if an idle worker of this broker has declared these parameters (R269)."""
        return any(declares(worker, service, needs) for idle in (service.idle, service.held_back) for worker in idle)


def _first_broker(service: Service) -> Worker | None:
    """Return the idle worker that stands for another broker, whose declarations are not known here."""
    for worker in service.held_back:
        if worker.profile.is_broker:
            return worker
    return None


def declares(worker: Worker, service: Service, names: tuple[str, ...]) -> bool:
    """True if the worker has declared these parameters of the service."""
    return service.parameters is not None and service.parameters.knows(worker.id, names)
