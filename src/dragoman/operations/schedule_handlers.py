"""Handlers of the operations on schedules."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from msgspec.structs import replace

from dragoman.core.broker import Broker
from dragoman.core.commits import SETTINGS
from dragoman.core.model import Payload
from dragoman.core.oversize import over_max_payload
from dragoman.core.shares import administers
from dragoman.operations.bulk_handlers import BulkHandlers
from dragoman.operations.handler_base import StoreAccess
from dragoman.operations.job_options import tenant_of
from dragoman.operations.payloads import payload_of
from dragoman.operations.responders import Responder
from dragoman.operations.scheduler import Scheduler
from dragoman.operations.schemas import (
    EmptyRequest,
    OperationError,
    ScheduleAct,
    ScheduleRef,
    ScheduleRequest,
    SchedulesView,
)
from dragoman.operations.table import DELETE_SCHEDULE, RUN_SCHEDULE
from dragoman.operations.visibility import sees_schedule


class ScheduleHandlers(BulkHandlers):
    """For each row of the table about schedules, the method with its name."""

    def __init__(
        self, broker: Broker, store_access: StoreAccess, offset: Callable[[], float], scheduler: Scheduler
    ) -> None:
        super().__init__(broker, store_access, offset)
        self.scheduler = scheduler

    def schedules(self, request: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        principal = responder.owner.principal
        seen = self.scheduler.list(lambda each: sees_schedule(principal, each.owner, each.request.service))
        responder.answer(SchedulesView(schedules=seen))

    def set_schedule(self, request: ScheduleRequest, payload: Payload, responder: Responder, now: float) -> None:
        if payload:
            request = replace(request, payload=None, payload_base64=b64encode(payload_of(request, payload)).decode())
        tenant_of(request)
        principal = responder.owner.principal
        size, most = len(payload_of(request, b"")), principal.limits.max_payload
        if most is not None and size > most:
            raise OperationError("too large", f"{over_max_payload('payload', size, most)} of {principal.name}")
        wall = now + self._offset()
        view = self.scheduler.put(request, now, wall, principal.name, is_administrator=administers(principal))
        self._answer_when_saved(responder, lambda: view, SETTINGS)

    def schedule(self, request: ScheduleRef, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self.scheduler.get(request.name))

    def delete_schedule(self, request: ScheduleAct, payload: Payload, responder: Responder, now: float) -> None:
        view = self.scheduler.get(request.name)
        self.scheduler.remove(request.name)
        self._answer_act(DELETE_SCHEDULE, request, view, responder, SETTINGS, now)

    def pause_schedule(self, request: ScheduleRef, payload: Payload, responder: Responder, now: float) -> None:
        view = self.scheduler.pause(request.name, now, now + self._offset())
        self._answer_when_saved(responder, lambda: view, SETTINGS)

    def resume_schedule(self, request: ScheduleRef, payload: Payload, responder: Responder, now: float) -> None:
        view = self.scheduler.resume(request.name, now, now + self._offset())
        self._answer_when_saved(responder, lambda: view, SETTINGS)

    def run_schedule(self, request: ScheduleAct, payload: Payload, responder: Responder, now: float) -> None:
        view = self.scheduler.run_now(request.name, now, now + self._offset())
        self._answer_act(RUN_SCHEDULE, request, view, responder, SETTINGS, now)
