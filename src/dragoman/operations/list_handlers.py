"""Handles the operations that list jobs, services and workers, and those that show the listeners and the broker.

Lists look at all rows in slices. The answer to a request that took several slices is kept for a second, so that many
dashboards that send the same request cost little more than one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from dragoman.core.broker import Broker
from dragoman.core.job_counts import count_all, count_of
from dragoman.core.model import Payload, Service, Worker
from dragoman.core.recipients import Recipient
from dragoman.core.rights import Principal, Rights
from dragoman.operations.cluster_schemas import NamedBroker
from dragoman.operations.handler_base import StoreAccess
from dragoman.operations.job_list import JobList
from dragoman.operations.list_schemas import (
    BrokerView,
    JobCountsRequest,
    JobCountsView,
    ListenersView,
    ListJobsRequest,
    ListServicesRequest,
    ListWorkersRequest,
)
from dragoman.operations.responders import Responder
from dragoman.operations.schedule_handlers import ScheduleHandlers
from dragoman.operations.scheduler import Scheduler
from dragoman.operations.schemas import EmptyRequest, OperationError, OperationRequest, ServiceView, View, WorkerView
from dragoman.operations.service_list import ServiceList
from dragoman.operations.service_views import RatesOf, no_rates, service_view
from dragoman.operations.slices import SlicedWork, Slices
from dragoman.operations.visible_views import visible_worker
from dragoman.operations.worker_list import Fleet, WorkerList

CACHE_TIME: Final = 1.0  # seconds
MOST_CACHED: Final = 64


class ServerFacts(Protocol):
    """Facts of the server around the broker."""

    def listeners(self) -> ListenersView: ...

    def broker(self) -> BrokerView: ...


class NoServer:
    """Stands for the server where there is none. Each method raises OperationError."""

    def listeners(self) -> ListenersView:
        raise OperationError("conflict", "this broker runs without a server, so it has no listeners")

    def broker(self) -> BrokerView:
        raise OperationError("conflict", "this broker runs without a server, so it has no settings")


class ListHandlers(ScheduleHandlers):
    """The functions of these operations. `slices` must be continued by `tick`."""

    def __init__(
        self, broker: Broker, store_access: StoreAccess, offset: Callable[[], float], scheduler: Scheduler
    ) -> None:
        super().__init__(broker, store_access, offset, scheduler)
        self.slices = Slices()
        self.server_facts: ServerFacts = NoServer()  # the server sets it
        self.listeners: dict[Recipient, str] = {}  # URLs by broker side; the server adds them
        self.rates: RatesOf = no_rates  # of a service; the server sets it
        self._cache: dict[tuple[str, bytes, str], tuple[float, Rights, View]] = {}

    def jobs(self, request: ListJobsRequest, payload: Payload, responder: Responder, now: float) -> None:
        """List jobs, newest first."""
        self._refuse_while_loading()
        kind = JobList if self.brokers is None else self.brokers.job_list
        self._begin(kind(self.broker, request, responder.owner.principal, self._offset()), request, responder, now)

    def services(self, request: ListServicesRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._refuse_while_loading()
        principal = responder.owner.principal
        work = ServiceList(self.broker, request, principal, self.rates, now, self._offset(), self.brokers)
        self._begin(work, request, responder, now)

    def workers(self, request: ListWorkersRequest, payload: Payload, responder: Responder, now: float) -> None:
        workers, principal = self.broker.worker_registry.workers.values(), responder.owner.principal
        self._begin(WorkerList(workers, request, principal, self._worker_view, now), request, responder, now)

    def job_counts(self, request: JobCountsRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._refuse_while_loading()
        counts = count_all(self.broker) if request.service is None else count_of(self.broker, request.service)
        waiting, delayed, dependent, running, done, undone, quarantined = counts.numbers()
        if self.brokers is not None:
            running -= self.brokers.running(request.service)
        responder.answer(
            JobCountsView(
                waiting=waiting,
                delayed=delayed,
                running=running,
                done=done,
                undone=undone,
                quarantined=quarantined,
                dependent=dependent,
            )
        )

    def fleet(self, request: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        workers = self.broker.worker_registry.workers.values()
        self._begin(Fleet(workers, responder.owner.principal), request, responder, now)

    def show_listeners(self, request: NamedBroker, payload: Payload, responder: Responder, now: float) -> None:
        self._check_broker(request)
        responder.answer(self.server_facts.listeners())

    def show_broker(self, request: NamedBroker, payload: Payload, responder: Responder, now: float) -> None:
        self._check_broker(request)
        responder.answer(self.server_facts.broker())

    # ---------------------------------------------------------------- helpers

    def _check_broker(self, request: NamedBroker) -> None:
        if request.broker is not None and self.brokers is None:
            raise OperationError("not found", "this broker belongs to no cluster: leave out the name of a broker")

    def _service_view(self, service: Service, now: float) -> ServiceView:
        workers = self.broker.worker_registry.workers.values()
        return service_view(service, workers, self.rates, now, self._offset(), self.brokers)

    def _worker_view(self, worker: Worker, principal: Principal, now: float) -> WorkerView:
        return visible_worker(worker, principal, now, self._offset(), self.listeners)

    def _request_tick(self) -> None:
        """Make the runner call `tick` in its next iteration."""
        self._store_access.wake()

    def _begin(self, work: SlicedWork, request: OperationRequest, responder: Responder, now: float) -> None:
        """Answer with the view of this work: now if one slice is enough, else after the last slice; or with the view of
        the same request a moment ago."""
        principal = responder.owner.principal
        key = type(work).__name__, msgspec.json.encode(request), principal.name
        kept = self._cache.get(key)
        if kept is not None and now < kept[0] + CACHE_TIME and kept[1] is principal.rights:
            responder.answer(kept[2])
            return
        view = self.slices.step_of(work, now)
        if view is not None:
            responder.answer(view)
            return

        def done(view: View) -> None:
            if len(self._cache) >= MOST_CACHED:
                self._cache.clear()
            self._cache[key] = now, principal.rights, view
            responder.answer(view)

        self.slices.add(work, done)
        self._request_tick()
