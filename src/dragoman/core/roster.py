"""Workers present, the services they offer, and who is idle: longest idle first (D7)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from dragoman.core.counters import UNNAMED
from dragoman.core.infinity import inf
from dragoman.core.lifecycle import move_worker, settle
from dragoman.core.model import Attempt, Job, Service, Worker, WorkerId
from dragoman.core.states import BUSY, DRAINING, GONE, IDLE

WORKERS_SHARE: Final = 5  # one in so many names is reserved for workers: callers cannot keep them out (R29)


class Roster:
    __slots__ = ("_age_step", "_last_id", "_max_services", "services", "workers")

    def __init__(self, age_step: float, max_services: int, first_id: int) -> None:
        self._age_step = age_step
        self._max_services = max_services
        self._last_id = first_id - 1
        self.workers: dict[WorkerId, Worker] = {}
        self.services: dict[str, Service] = {}

    def next_id(self) -> WorkerId:
        """Worker numbers rise and are never used twice (R28)."""
        self._last_id += 1
        return WorkerId(self._last_id)

    def service(self, name: str) -> Service | None:
        """The service of that name, made if there is room for one more name that no worker offers (R29)."""
        service = self.services.get(name)
        if service is None:
            found = self.services_for((name,), reserve=self._max_services // WORKERS_SHARE)
            service = found[0] if found is not None else None
        return service

    def counted_as(self, service: str) -> str:
        """The name under which a dropped job is counted. Names that are no services share one, so that a caller that
        makes names up does not flood the log."""
        return service if service in self.services else UNNAMED

    def restore_service(self, name: str) -> Service:
        """The service that a job of an earlier run is for: it comes back even beyond the bound of names."""
        service = self.services.get(name)
        if service is None:
            service = self.services[name] = Service(name, self._age_step)
        return service

    def services_for(self, names: Collection[str], reserve: int = 0) -> list[Service] | None:
        """The services of these names, or none of them if one more name would be too many."""
        missing = [name for name in names if name not in self.services]
        most = self._max_services - reserve
        if len(self.services) + len(missing) > most:
            self._forget_unused(keep=names)
            if len(self.services) + len(missing) > most:
                return None
        for name in missing:
            self.services[name] = Service(name, self._age_step)
        return [self.services[name] for name in names]

    def enter(self, worker: Worker, services: Iterable[Service]) -> None:
        worker.services = tuple(services)
        for service in worker.services:
            service.workers += 1
            service.is_known = True
            service.discharge()
        self.workers[worker.id] = worker

    def change_services(self, worker: Worker, services: Collection[Service]) -> None:
        """The worker offers these from now on. Where it offered one before, it keeps its place among the idle."""
        dropped = [each for each in worker.services if each not in services]
        added = [each for each in services if each not in worker.services]
        worker.services = tuple(services)
        for service in dropped:
            service.workers -= 1
            service.idle.remove(worker)
            service.held_back.remove(worker)
        for service in added:
            service.workers += 1
            service.is_known = True
            service.discharge()

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
        worker.unproven.clear()
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
        if len(worker.running) + len(worker.unproven) >= worker.terms.capacity:
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

    def _forget_unused(self, keep: Collection[str]) -> None:
        """Make room among the names: drop those nobody offers, asks for or has paused."""
        for service in list(self.services.values()):
            if not service.workers and not service.jobs and not service.paused and service.name not in keep:
                del self.services[service.name]
