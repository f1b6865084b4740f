"""Handlers of the operations on groups of quarantined jobs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from dragoman.core.broker import Broker
from dragoman.core.model import Payload
from dragoman.core.rights import CALL
from dragoman.operations.group_retries import GroupRetries, GroupRetry
from dragoman.operations.handler_base import HandlerBase, StoreAccess
from dragoman.operations.quarantine_groups import may_use, quarantine_view
from dragoman.operations.quarantine_schemas import RetryGroupRequest, RetryGroupView
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import EmptyRequest, OperationError


class QuarantineHandlers(HandlerBase):
    """The operations `quarantine` and `retry group`."""

    def __init__(self, broker: Broker, store_access: StoreAccess, offset: Callable[[], float]) -> None:
        super().__init__(broker, store_access, offset)
        self.group_retries = GroupRetries(broker)

    def quarantine(self, request: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._refuse_while_loading()
        groups = self.broker.job_registry.kept.quarantine
        responder.answer(quarantine_view(groups, responder.owner.principal, self._offset()))

    def retry_group(self, request: RetryGroupRequest, payload: Payload, responder: Responder, now: float) -> None:
        """Start to retry a group, or return the progress of the retry that this principal has started."""
        self._refuse_while_loading()
        if self.broker.dispatch.is_draining:
            raise OperationError("draining", "the broker is shutting down; retry later")
        principal = responder.owner.principal
        retry = self.group_retries.find(request.group, principal.name)
        if retry is None:
            parts = self.broker.job_registry.kept.quarantine.parts_of(request.group)
            jobs = list(chain.from_iterable(part.jobs.values() for part in parts if may_use(principal, CALL, part)))
            retry = GroupRetry(request.group, parts[0].service, principal.name, jobs, request.rate, now)
            self.group_retries.start(retry, now)
        view = RetryGroupView(group=request.group, retried=retry.retried, of=retry.of)
        self._answer_when_saved(responder, lambda: view)
