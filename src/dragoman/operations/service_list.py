"""The list of services: text filter, order, pages."""

from __future__ import annotations

from dragoman.core.broker import Broker
from dragoman.core.model import Service
from dragoman.core.rights import Principal
from dragoman.operations.list_schemas import ListServicesRequest, ServicesView
from dragoman.operations.ranking import FirstRows, Rank, read_cursor
from dragoman.operations.schemas import ServiceView
from dragoman.operations.service_views import OtherBrokers, RatesOf, ServiceRows
from dragoman.operations.slices import RowReader
from dragoman.operations.visibility import sees_service


class ServiceList:
    """Makes one page of the list, in slices."""

    def __init__(
        self,
        broker: Broker,
        request: ListServicesRequest,
        principal: Principal,
        rates: RatesOf,
        now: float,
        offset: float,
        others: OtherBrokers | None = None,
    ) -> None:
        """Raises OperationError if `after` is not valid."""
        registry = broker.worker_registry
        self._workers = RowReader(list(registry.workers.values()))
        self._services = RowReader(enumerate(list(registry.services.values())))
        self._is_first = True
        self._has_counted = False
        self._made = ServiceRows(rates, offset, others)
        self._principal = principal
        self._text = request.text.casefold() if request.text is not None else None
        self._sort = service_order(request)
        self._cursor = read_cursor(request.after, now, has_text_keys=self._sort == "name", has_numbers=False)
        self._rows: FirstRows[ServiceView] = FirstRows(request.limit, self._cursor)

    def step(self, now: float) -> ServicesView | None:
        """Look at the next workers, then at the next services. Returns None if there are more."""
        if not self._has_counted and not self._count():
            return None
        for position, service in self._services.slice():
            if self._is_listed(service):
                view = self._made.view(service, self._cursor.at)
                self._rows.offer(service_rank(view, self._sort, position), view)
        if not self._services.is_over:
            return None
        page, after = self._rows.page()
        return ServicesView(services=page, after=after)

    def _count(self) -> bool:
        """Count the next workers. Returns whether there is time for services in this slice: not after a long count."""
        is_first, self._is_first = self._is_first, False
        for worker in self._workers.slice():
            self._made.count(worker)
        self._has_counted = self._workers.is_over
        return self._has_counted and is_first

    def _is_listed(self, service: Service) -> bool:
        text = self._text
        return sees_service(self._principal, service.name) and (text is None or text in service.name.casefold())


def service_order(request: ListServicesRequest) -> str:
    """Return the order of the list: a field, or `known`: as the services became known."""
    is_paged = request.limit is not None or request.after is not None
    return request.sort or ("name" if is_paged else "known")


def service_rank(view: ServiceView, order: str, position: int) -> Rank:
    match order:
        case "need":
            return -view.need, view.name
        case "waiting":
            return -float(view.waiting), view.name
        case "rate":
            return -((view.done or 0.0) + (view.undone or 0.0)), view.name
        case "name":
            return "", view.name
    return 0.0, position
