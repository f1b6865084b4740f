"""Handles the operation that limits a service."""

from __future__ import annotations

from dragoman.core.commits import SETTINGS
from dragoman.core.limit_values import NOTHING_GIVEN, LimitValues, read_rate
from dragoman.core.model import Payload
from dragoman.operations.ladder_handlers import LadderHandlers
from dragoman.operations.limit_schemas import LimitRequest
from dragoman.operations.limits import store_limits
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import OperationError
from dragoman.operations.visibility import signature


class LimitHandlers(LadderHandlers):
    """The operation `limit`."""

    def limit(self, request: LimitRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._check_service_name(request.name)
        known = self.broker.worker_registry.services.get(request.name)
        limits = known.limits if known is not None else None
        values = NOTHING_GIVEN if limits is None or request.reset else limits.by_operator
        values = _changed(values, request)
        author = signature(responder.owner.principal, "an operator")
        service = self.broker.limiter.set_by_operator(request.name, values, author, now, responder.owner)
        if service is None:
            raise self._too_many_services()
        store_limits(service, self._store_access.note)
        self._answer_when_saved(responder, lambda: self._service_view(service, now), SETTINGS)


def _changed(values: LimitValues, request: LimitRequest) -> LimitValues:
    """Return the values with those that the request has. Raises OperationError."""
    try:
        rate = values.rate if request.rate is None else read_rate(request.rate)
    except ValueError as error:
        raise OperationError("invalid", str(error)) from None
    return LimitValues(
        values.max_running if request.max_running is None else request.max_running,
        values.max_running_per_tenant if request.max_running_per_tenant is None else request.max_running_per_tenant,
        rate,
    )
