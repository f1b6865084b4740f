"""Objects that the request handlers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dragoman.core.broker import Broker
from dragoman.core.owners import Owner
from dragoman.http.hosts import is_local
from dragoman.http.labels import ServiceLabels
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
    labels: ServiceLabels = field(default_factory=ServiceLabels)
    traffic: Callable[[], tuple[int, int]] = lambda: (0, 0)  # bytes received and sent over HTTP

    def owner(self, scope: Mapping[str, Any]) -> Owner:
        """Return the owner whose limits apply to the jobs of this request: its address, since a connection may carry
        only one request. All callers on this machine are one owner."""
        client = scope.get("client")
        principal = self.broker.principals.local
        if client is None or is_local(client[0]):
            return self.broker.owners.at("", principal, "HTTP on this machine")
        return self.broker.owners.at(client[0], principal)
