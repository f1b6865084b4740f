"""Handles the operation that enqueues one job; and the pins of predecessors, for brokers of a cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.job_keys import Place
from dragoman.core.kept_jobs import digest
from dragoman.core.model import JobId, Payload
from dragoman.core.options import JobOptions
from dragoman.core.owners import Owner
from dragoman.operations.job_options import extras_of, options_of
from dragoman.operations.key_handlers import Holders, KeyHandlers
from dragoman.operations.payloads import payload_of
from dragoman.operations.pins import PinRequest, Pins, PinView
from dragoman.operations.placement import placed_id
from dragoman.operations.predecessors import check_predecessor, linked_extras
from dragoman.operations.recorded_requests import record_request
from dragoman.operations.responders import NULL_RESPONDER, PendingRequest, Responder
from dragoman.operations.schemas import EnqueueRequest, ErrorView, OperationError, ResultRequest, View
from dragoman.operations.table import ENQUEUE, RESULT

KEYS_LOADING: Final = "jobs of the last run are still being read, so keys cannot be looked up yet; retry in a second"


class EnqueueHandlers(KeyHandlers):
    """The operation `enqueue`."""

    def enqueue(self, request: EnqueueRequest, payload: Payload, responder: Responder, now: float) -> PendingRequest:
        pending = PendingRequest(self, responder, inf)
        self._enqueue(request, payload, pending, now)
        return pending

    def _enqueue(self, request: EnqueueRequest, payload: Payload, pending: PendingRequest, now: float) -> None:
        """Raises OperationError."""
        job_options = options_of(request, now, self._offset, self.broker.policy.max_delay)
        if request.key is not None and self.is_loading:
            raise OperationError("loading", KEYS_LOADING)
        assert pending.responder is not None
        responder = pending.responder
        body = payload_of(request, payload)
        extras = extras_of(request)
        id = None
        if self.placement is not None:
            owner = responder.owner.principal.name
            id = placed_id(self.placement, owner, request.service, request.key, request.after)
            if request.key is not None and self._is_reserved((owner, request.service, request.key)):
                self._find_first(request, payload, pending, now)
                return
        if request.after or request.input != "payload":
            foreign = self._foreign(id, request)
            extras = linked_extras(extras, request, body, self.broker, responder.owner.principal, foreign)
            if foreign and id is not None:
                self._pin_first(id, foreign, request, body, pending, now)
                return
        self._submit(request, body, pending, job_options, id, extras, now)

    def _submit(
        self,
        request: EnqueueRequest,
        body: Payload,
        pending: PendingRequest,
        job_options: JobOptions,
        id: JobId | None,
        extras: JobExtras | None,
        now: float,
    ) -> None:
        job = self.broker.submit(
            request.service, body, pending, job_options, now, key=request.key, id=id, extras=extras
        )
        record_request(job, ENQUEUE, pending.responder or NULL_RESPONDER, len(body), now)

    def finish(self, pending: PendingRequest) -> Responder:
        """End a request that waits. Returns its responder."""
        return self._finish(pending, self._placement().now())

    def _finish(self, pending: PendingRequest, now: float) -> Responder:
        responder, pending.responder = pending.responder, None
        self._waiting.disarm(pending)
        if pending.group is not None:
            self.broker.job_registry.groups.leave(pending.group, pending)
        self.broker.caller_gone(pending, now)
        return responder if responder is not None else NULL_RESPONDER

    # ---------------------------------------------------------------- keys of jobs in other shards

    def _is_reserved(self, place: Place) -> bool:
        """True if a key belongs to a job of another shard, as far as it is known here."""
        assert self.placement is not None
        return self.placement.keys.find(place) is not None and self._holder(place) is None

    def _find_first(self, request: EnqueueRequest, payload: Payload, pending: PendingRequest, now: float) -> None:
        """Return the job of a reserved key, or make a new one if there is none."""
        placement, responder = self._placement(), pending.responder
        assert responder is not None
        assert request.key is not None
        place = responder.owner.principal.name, request.service, request.key
        reserved = placement.keys.find(place)
        assert reserved is not None

        def known(holders: Holders | ErrorView) -> None:
            if pending.responder is None:
                return  # the client has left
            then = placement.now()
            try:
                if isinstance(holders, ErrorView):
                    raise OperationError(holders.kind, holders.detail)
                holder = holders[place]
                if placement.keys.find(place) is not reserved:
                    self._enqueue(request, payload, pending, then)  # another request was faster
                elif holder.state == "held":
                    if holder.digest != digest(payload_of(request, payload)).hex():
                        raise OperationError("key reused", f"'{request.key}' came with another payload before")
                    self._show_first(holder.id, pending, then)
                else:
                    placement.keys.drop(place, reserved.id)
                    self._enqueue(request, payload, pending, then)
            except OperationError as error:
                self._finish(pending, then).refuse(error.problem)
            self._request_tick()

        self._find_holders({place: reserved}, responder, known, now)

    def _show_first(self, id: str, pending: PendingRequest, now: float) -> None:
        """Answer with a job of another shard, and its result if it has ended."""
        assert self.brokers is not None
        assert pending.responder is not None
        self.brokers.ask(RESULT, ResultRequest(id=id), b"", FirstResponder(self, pending), now)

    # ---------------------------------------------------------------- predecessors in other shards

    def _foreign(self, id: JobId | None, request: EnqueueRequest) -> list[JobId]:
        """Return the predecessors of a new job that are in other shards of the cluster."""
        placement = self.placement
        if placement is None or id is None:
            return []
        shard = placement.shard_of(id)
        before = dict.fromkeys(JobId(bytes.fromhex(each)) for each in request.after)
        return [each for each in before if placement.is_foreign(shard, each)]

    def _pin_first(
        self,
        id: JobId,
        foreign: Collection[JobId],
        request: EnqueueRequest,
        body: Payload,
        pending: PendingRequest,
        now: float,
    ) -> None:
        """Accept a job when its predecessors in other shards are pinned. Shards may move meanwhile, and predecessors in
        its own may be deleted."""
        placement, brokers, responder = self.placement, self.brokers, pending.responder
        assert placement is not None
        assert brokers is not None
        assert responder is not None
        shard = placement.shard_of(id)

        def pinned(problem: ErrorView | None, _: int) -> None:
            if pending.responder is None:
                return  # the client has left
            then = placement.now()
            try:
                if problem is not None:
                    raise OperationError(problem.kind, problem.detail)
                reason = placement.elsewhere(shard)
                if reason is not None:
                    raise OperationError("partitioned", reason)
                job_options = options_of(request, then, self._offset, self.broker.policy.max_delay)
                extras = extras_of(request)
                extras = linked_extras(extras, request, body, self.broker, responder.owner.principal, foreign)
                self._submit(request, body, pending, job_options, id, extras, then)
            except OperationError as error:
                self._finish(pending, then).refuse(error.problem)
            self._request_tick()

        input = JobInput(request.input)
        Pins(placement, shard, dict.fromkeys([(each, input) for each in foreign], 0), pinned).begin(
            brokers, responder, now
        )

    def pin(self, request: PinRequest, payload: Payload, responder: Responder, now: float) -> None:
        """Keep the outcome of a job or group for jobs of another shard. Only brokers ask for it."""
        id = JobId(bytes.fromhex(request.id))
        check_predecessor(id, self.broker, responder.owner.principal, JobInput(request.input))
        if self.placement is None or not self.placement.pin(id, request.shard, request.epoch):
            raise OperationError("partitioned", f"the shard of job {request.id} is about to move; retry in a moment")
        self._answer_when_saved(responder, PinView, self._shards(id))


class FirstResponder:
    """Receives the first job with a key, from another shard, for a request that waits."""

    __slots__ = ("_handlers", "_pending", "dialect", "origin", "owner")

    def __init__(self, handlers: EnqueueHandlers, pending: PendingRequest) -> None:
        assert pending.responder is not None
        self._handlers = handlers
        self._pending = pending
        self.owner: Owner = pending.responder.owner
        self.dialect = pending.responder.dialect
        self.origin = pending.responder.origin

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        self._handlers.finish(self._pending).answer(view, payload, failure)

    def refuse(self, problem: ErrorView) -> None:
        self._handlers.finish(self._pending).refuse(problem)
