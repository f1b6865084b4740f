"""Handles the operations on ladders."""

from __future__ import annotations

from typing import Final

from dragoman.core.model import JobId, Payload
from dragoman.operations.group_handlers import GroupHandlers
from dragoman.operations.ladder_schemas import LadderRequest, WorkerLadderRequest
from dragoman.operations.ladder_views import conversation_view, worker_view
from dragoman.operations.responders import Responder
from dragoman.operations.schemas import OperationError

OFF: Final = "this broker records no messages; start it with --ladders, or set ladders = true"


class LadderHandlers(GroupHandlers):
    """The operations `ladder` and `worker ladder`."""

    def ladder(self, request: LadderRequest, payload: Payload, responder: Responder, now: float) -> None:
        id = JobId(bytes.fromhex(request.id))
        conversations = self.broker.job_registry.conversations
        job = self.broker.jobs.get(id)
        found = conversations.watch_job(job, now) if job is not None else conversations.find(id)
        if found is None:
            raise OperationError("conflict", OFF) if not conversations.is_on else self.targets.missing_job(request.id)
        responder.answer(conversation_view(found, self._offset(), responder.owner.principal, self.broker))

    def worker_ladder(self, request: WorkerLadderRequest, payload: Payload, responder: Responder, now: float) -> None:
        worker = self.targets.worker(request.id)
        found = self.broker.job_registry.conversations.watch_worker(worker, now)
        if found is None:
            raise OperationError("conflict", OFF)
        responder.answer(worker_view(worker, found, responder.owner.principal, self._offset()))
