"""Views of services, with facts that are summed up from their workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dragoman.core.model import Service, Worker
from dragoman.core.recipients import dialect_of
from dragoman.operations.limits import limits_view
from dragoman.operations.schemas import ServiceView
from dragoman.operations.service_need import service_need
from dragoman.operations.views import moment


class ServiceRates(NamedTuple):
    """Numbers of the last 10 seconds: jobs per second, and p50, p95, p99 of waiting and running, in seconds. A quantile
    is None if nothing was measured."""

    arrived: float
    done: float
    undone: float
    wait: list[float | None]
    run: list[float | None]


RatesOf = Callable[[Service], ServiceRates | None]


def no_rates(service: Service) -> ServiceRates | None:
    """Return None: nothing samples the services."""
    return None


class ServiceRows:
    """Makes views of services. All workers must be counted first."""

    def __init__(self, rates: RatesOf, offset: float) -> None:
        """`offset`: seconds that the wall clock is ahead of the clock of jobs."""
        self._rates = rates
        self._offset = offset
        self._slots: dict[Service, int] = {}
        self._dialects: dict[Service, dict[str, None]] = {}

    def count(self, worker: Worker) -> None:
        dialect = dialect_of(worker.recipient)
        for service in worker.services:
            self._slots[service] = self._slots.get(service, 0) + worker.profile.capacity
            self._dialects.setdefault(service, {})[dialect] = None

    def view(self, service: Service, now: float) -> ServiceView:
        head = service.queue.oldest()
        waiting = service.queue.length
        oldest = round(max(0.0, now - head.arrival), 3) if head is not None else 0.0
        view = ServiceView(
            name=service.name,
            paused=service.paused,
            paused_by=service.paused_by,
            waiting=waiting,
            delayed=service.delayed,
            dependent=service.dependent,
            running=service.running,
            oldest=oldest,
            workers=service.workers,
            idle=len(service.idle) + len(service.held_back),
            ended={outcome.value: count for outcome, count in service.ended.items() if count},
            paused_at=moment(service.paused_at + self._offset) if service.paused_at is not None else None,
            slots=self._slots.get(service, 0),
            dialects=sorted(self._dialects.get(service, ())),
            limits=limits_view(service, now),
        )
        rates = self._rates(service)
        if rates is not None:
            view.arrived, view.done, view.undone, view.wait, view.run = rates
        is_limited = view.limits is not None and view.limits.reached is not None
        view.need = service_need(
            waiting, oldest, service.workers, service.paused, view.done or 0.0, view.undone or 0.0, is_limited
        )
        return view


def service_view(service: Service, workers: Iterable[Worker], rates: RatesOf, now: float, offset: float) -> ServiceView:
    """Return the view of one service."""
    rows = ServiceRows(rates, offset)
    for worker in workers:
        rows.count(worker)
    return rows.view(service, now)
