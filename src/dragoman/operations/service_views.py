"""Views of services, with facts that are summed up from their workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

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


CLUSTER: Final = "cluster"  # dialect of workers at other brokers, and of the callers of their jobs


class OtherBrokers(Protocol):
    """Jobs of other brokers of the cluster that run here. Their own brokers count them, too."""

    def running(self, service: str | None) -> int:
        """Return the number of those that have not ended, of one service or of all."""

    def running_by_service(self) -> Mapping[str, int]:
        """Return the numbers of those that have not ended, by service."""

    def ended(self, service: str | None) -> Mapping[str, int]:
        """Return the numbers of those that have ended, by outcome, of one service or of all."""


class ServiceRows:
    """Makes views of services. All workers must be counted first. In a cluster, workers at other brokers and jobs of
    other brokers are left out, so that the views of all brokers can be added."""

    def __init__(self, rates: RatesOf, offset: float, others: OtherBrokers | None = None) -> None:
        """`offset`: seconds that the wall clock is ahead of the clock of jobs. `others`: None: there is no cluster."""
        self._rates = rates
        self._offset = offset
        self._others = others
        self._remote: dict[Service, int] = {}  # workers at other brokers
        self._slots: dict[Service, int] = {}
        self._dialects: dict[Service, dict[str, None]] = {}

    def count(self, worker: Worker) -> None:
        dialect = dialect_of(worker.recipient)
        if dialect == CLUSTER and self._others is not None:
            for service in worker.services:
                self._remote[service] = self._remote.get(service, 0) + 1
            return
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
        if (others := self._others) is not None:
            running, ended = others.running(service.name), others.ended(service.name)
            leave_out_others(view, service, self._remote.get(service, 0), running, ended)
        rates = self._rates(service)
        if rates is not None:
            view.arrived, view.done, view.undone, view.wait, view.run = rates
        is_limited = view.limits is not None and view.limits.reached is not None
        view.need = service_need(
            waiting, oldest, view.workers, service.paused, view.done or 0.0, view.undone or 0.0, is_limited
        )
        return view


def leave_out_others(view: ServiceView, service: Service, remote: int, running: int, ended: Mapping[str, int]) -> None:
    """Take what other brokers count out of the view of a service. `remote`: workers at other brokers; `running` and
    `ended`: jobs of other brokers."""
    view.workers -= remote
    view.idle -= len([each for each in service.held_back if dialect_of(each.recipient) == CLUSTER])
    view.running -= running
    for outcome, count in ended.items():
        view.ended[outcome] = view.ended.get(outcome, 0) - count
    view.ended = {outcome: count for outcome, count in view.ended.items() if count > 0}


def service_view(
    service: Service,
    workers: Iterable[Worker],
    rates: RatesOf,
    now: float,
    offset: float,
    others: OtherBrokers | None = None,
) -> ServiceView:
    """Return the view of one service."""
    rows = ServiceRows(rates, offset, others)
    for worker in workers:
        rows.count(worker)
    view = rows.view(service, now)
    view.parameters = service.parameters.union() if service.parameters is not None else None
    return view
