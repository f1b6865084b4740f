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
from dragoman.core.model import Payload, Service
from dragoman.core.rights import Rights
from dragoman.operations.dashboard_handlers import DashboardHandlers
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
from dragoman.operations.schemas import EmptyRequest, OperationError, OperationRequest, ServiceView, View
from dragoman.operations.service_list import ServiceList
from dragoman.operations.service_views import ServiceRates, no_rates, service_view
from dragoman.operations.slices import SlicedWork, Slices
from dragoman.operations.targets import LOADING
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


class ListHandlers(DashboardHandlers):
    """The functions of these operations. `slices` must be continued by `tick`."""

    def __init__(self, broker: Broker, offset: Callable[[], float], request_tick: Callable[[], None]) -> None:
        """`offset`: seconds that the wall clock is ahead of `now`. `request_tick` makes the runner call `tick`."""
        super().__init__()
        self.broker = broker
        self.slices = Slices()
        self.server_facts: ServerFacts = NoServer()  # the server sets it
        self.rates: Callable[[str], ServiceRates | None] = no_rates  # of a service; the server sets it
        self._offset = offset
        self._request_tick = request_tick
        self._cache: dict[tuple[str, bytes, str], tuple[float, Rights, View]] = {}

    def jobs(self, request: ListJobsRequest, payload: Payload, responder: Responder, now: float) -> None:
        """List jobs, newest first."""
        self.refuse_while_loading()
        self._begin(JobList(self.broker, request, responder.owner.principal, self._offset()), request, responder, now)

    def services(self, request: ListServicesRequest, payload: Payload, responder: Responder, now: float) -> None:
        self.refuse_while_loading()
        principal = responder.owner.principal
        work = ServiceList(self.broker, request, principal, self.rates, now, self._offset())
        self._begin(work, request, responder, now)

    def workers(self, request: ListWorkersRequest, payload: Payload, responder: Responder, now: float) -> None:
        workers = self.broker.worker_registry.workers.values()
        self._begin(WorkerList(workers, request, responder.owner.principal, now), request, responder, now)

    def job_counts(self, request: JobCountsRequest, payload: Payload, responder: Responder, now: float) -> None:
        self.refuse_while_loading()
        counts = count_all(self.broker) if request.service is None else count_of(self.broker, request.service)
        waiting, delayed, running, done, undone, quarantined = counts.numbers()
        responder.answer(
            JobCountsView(
                waiting=waiting, delayed=delayed, running=running, done=done, undone=undone, quarantined=quarantined
            )
        )

    def fleet(self, request: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        workers = self.broker.worker_registry.workers.values()
        self._begin(Fleet(workers, responder.owner.principal), request, responder, now)

    def listeners(self, request: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self.server_facts.listeners())

    def show_broker(self, request: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self.server_facts.broker())

    # ---------------------------------------------------------------- helpers

    def refuse_while_loading(self) -> None:
        """Raise OperationError while jobs are being loaded: in an incomplete list, jobs would seem lost."""
        if self.broker.job_registry.is_loading:
            raise OperationError("loading", LOADING)

    def service_view(self, service: Service, now: float) -> ServiceView:
        workers = self.broker.worker_registry.workers.values()
        return service_view(service, workers, self.rates, now, self._offset())

    def _begin(self, work: SlicedWork, request: OperationRequest, responder: Responder, now: float) -> None:
        """Answer with the view of this work: now if one slice is enough, else after the last slice; or with the view of
        the same request a moment ago."""
        principal = responder.owner.principal
        key = type(work).__name__, msgspec.json.encode(request), principal.name
        kept = self._cache.get(key)
        if kept is not None and now < kept[0] + CACHE_TIME and kept[1] is principal.rights:
            responder.answer(kept[2])
            return
        view = work.step(now)
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
