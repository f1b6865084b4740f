"""Objects that the request handlers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dragoman.core.broker import Broker
from dragoman.core.owners import Owner
from dragoman.core.rights import Principal
from dragoman.dashboard.dashboard import Dashboard
from dragoman.http.admission import admission_of
from dragoman.http.hosts import is_local
from dragoman.http.labels import ServiceLabels
from dragoman.http.options import DashboardMode
from dragoman.http.request_access import RequestAccess
from dragoman.operations.handlers import OperationHandlers
from dragoman.operations.schemas import HealthView

if TYPE_CHECKING:
    from dragoman.http.broker_side import HttpBrokerSide


@dataclass(slots=True)
class AppContext:
    """Context of the HTTP application."""

    broker: Broker
    operations: OperationHandlers
    session: HttpBrokerSide
    runner: Any  # `connections.request_iteration()` must be called after each call of the broker
    now: Callable[[], float]
    health: Callable[[], HealthView]
    max_payload: int
    access: RequestAccess = field(default_factory=RequestAccess)
    labels: ServiceLabels = field(default_factory=ServiceLabels)
    dashboard_mode: DashboardMode = DashboardMode.OFF
    shows_payloads: bool = True  # of jobs that were submitted before; a caller always gets its result
    traffic: Callable[[], tuple[int, int]] = lambda: (0, 0)  # bytes received and sent over HTTP
    certificates: Callable[[], list[tuple[str, float]]] = list  # listeners with TLS, and when their certificates expire
    dashboard: Dashboard | None = None

    def principal(self, scope: Mapping[str, Any]) -> Principal:
        """Return the principal of a request that was admitted."""
        admission = admission_of(scope)
        assert admission is not None, "a request without a principal has reached a route for principals"
        return admission.principal

    def owner(self, scope: Mapping[str, Any]) -> Owner:
        """Return the owner whose limits apply to the jobs of this request: its principal at its address, since a
        connection may carry only one request. All callers of a principal on this machine are one owner."""
        client = scope.get("client")
        principal = self.principal(scope)
        if client is None or is_local(client[0]):
            return self.broker.owners.at("", principal, "HTTP on this machine")
        return self.broker.owners.at(client[0], principal)
