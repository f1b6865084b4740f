"""Handlers of the operations that return the dashboard's data."""

from __future__ import annotations

from typing import Final, Protocol

from dragoman.core.model import Payload
from dragoman.core.recipients import TimedRecipient
from dragoman.core.rights import Principal
from dragoman.operations.dashboard_schemas import OverviewRequest, OverviewView, SeriesView, ServiceSeriesRequest
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import OperationError


class DashboardData(Protocol):
    """The part of the dashboard that operations use."""

    def overview(self, range_name: str, principal: Principal, now: float) -> OverviewView: ...

    def series(self, service: str, range_name: str, principal: Principal, now: float) -> SeriesView: ...


class NoDashboard:
    """Stands for the dashboard where there is none."""

    def overview(self, range_name: str, principal: Principal, now: float) -> OverviewView:
        raise OperationError("conflict", "this broker keeps no history; ask one that was started with dragoman serve")

    def series(self, service: str, range_name: str, principal: Principal, now: float) -> SeriesView:
        raise OperationError("conflict", "this broker keeps no history; ask one that was started with dragoman serve")


class DashboardHandlers(TimedRecipient):
    """The operations `overview` and `service series`. The server sets `dashboard`."""

    def __init__(self) -> None:
        self.dashboard: DashboardData = NO_DASHBOARD

    def overview(self, request: OverviewRequest, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self.dashboard.overview(request.range, responder.owner.principal, now))

    def service_series(self, request: ServiceSeriesRequest, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self.dashboard.series(request.name, request.range, responder.owner.principal, now))


NO_DASHBOARD: Final = NoDashboard()
