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
from dragoman.core.remembered import RequestId
from dragoman.operations.job_options import extras_of, options_of
from dragoman.operations.key_handlers import Holders, KeyHandlers
from dragoman.operations.payloads import payload_of
from dragoman.operations.pins import PinRequest, Pins, PinView
from dragoman.operations.placement import placed_id
from dragoman.operations.predecessors import check_predecessor, linked_extras
from dragoman.operations.recorded_requests import record_request
from dragoman.operations.repeated_requests import find_repeated, forgotten_job, request_id_of
from dragoman.operations.responders import NULL_RESPONDER, PendingRequest, Responder
from dragoman.operations.schemas import EnqueueRequest, ErrorView, JobView, OperationError, ResultRequest, View
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
        if (request.key is not None or request.request_id is not None) and self.is_loading:
            raise OperationError("loading", KEYS_LOADING)
        assert pending.responder is not None
        responder = pending.responder
        body = payload_of(request, payload)
        extras = extras_of(request)
        id = None
        owner = responder.owner.principal.name
        asked = request_id_of(request.request_id)
        if self.placement is not None:
            id = placed_id(self.placement, owner, request.service, request.key, request.after, asked)
        if asked is not None:
            id = self._id_of(asked, owner, id)
            if self._is_repeated(asked, owner, id, request, body, pending, now):
                return
        if self.placement is not None and id is not None:
            if request.key is not None and self._is_reserved((owner, request.service, request.key)):
                self._find_first(request, payload, pending, asked, id, now)
                return
        if request.after or request.input != "payload":
            foreign = self._foreign(id, request)
            extras = linked_extras(extras, request, body, self.broker, responder.owner.principal, foreign)
            if foreign and id is not None:
                self._pin_first(id, foreign, request, body, pending, asked, now)
                return
        self._submit(request, body, pending, job_options, id, extras, asked, now)

    def _submit(
        self,
        request: EnqueueRequest,
        body: Payload,
        pending: PendingRequest,
        job_options: JobOptions,
        id: JobId | None,
        extras: JobExtras | None,
        asked: RequestId | None,
        now: float,
    ) -> None:
        job = self.broker.submit(
            request.service, body, pending, job_options, now, key=request.key, id=id, extras=extras
        )
        if asked is not None and job is not None and id is not None:
            self._remember(asked, id, job.id, request, body, pending, now)
        record_request(job, ENQUEUE, pending.responder or NULL_RESPONDER, len(body), now)

    # ---------------------------------------------------------------- repeated requests

    def _id_of(self, asked: RequestId, owner: str, placed: JobId | None) -> JobId:
        """Return the id of the job of a new request. `placed`: an id in its shard, in a cluster."""
        if asked.is_free:
            return self.broker.entropy.job_id() if placed is None else placed
        id = asked.job_id(owner)
        if placed is None or self.placement is None:
            return id
        return self.placement.in_shard(id, self.placement.shard_of(placed))

    def _is_repeated(
        self,
        asked: RequestId,
        owner: str,
        id: JobId,
        request: EnqueueRequest,
        body: Payload,
        pending: PendingRequest,
        now: float,
    ) -> bool:
        """Answer a request that was accepted before with its job. False: it is new. Raises OperationError."""
        shard = self.broker.job_registry.pending_commits.shard(id)
        found = find_repeated(self.broker, asked, owner, shard, now)
        if found is None:
            return False
        if found.answer:
            name, _, made = found.answer.partition(" ")
            if made and made != _mark(request, body):
                raise OperationError("key reused", f"request_id {request.request_id!r} came with another job before")
            id = JobId(bytes.fromhex(name))
        job = self.broker.jobs.get(id)
        if job is not None:
            self.broker.job_registry.kept.join_first(job, pending)
            record_request(job, ENQUEUE, pending.responder or NULL_RESPONDER, len(body), now)
        elif self.placement is not None and self.placement.elsewhere(self.placement.shard_of(id)) is not None:
            self._show_first(id.hex(), pending, now, forgotten_job(id, request, now + self._offset()))
        else:
            self._finish(pending, now).answer(forgotten_job(id, request, now + self._offset()))
        return True

    def _remember(
        self,
        asked: RequestId,
        id: JobId,
        made: JobId,
        request: EnqueueRequest,
        body: Payload,
        pending: PendingRequest,
        now: float,
    ) -> None:
        """Remember an accepted request. `id`: of its new job; `made`: of the job that it has, which may be another one
        with its key."""
        assert pending.responder is not None
        owner, remembered = pending.responder.owner.principal.name, self.broker.job_registry.remembered
        answer = ""
        if asked.is_free:
            answer = f"{made.hex()} {_mark(request, body)}"
        elif made != id:
            answer = made.hex()
        shard = self.broker.job_registry.pending_commits.shard(id)
        if made == id:
            remembered.accept_job(asked, owner, shard, id, now, answer)
        else:
            remembered.accept(asked, owner, shard, now, answer)
            pending.remembered_in = shard

    def _answer_asked(
        self, pending: PendingRequest, view: View, payload: Payload, failure: Failure | None, now: float
    ) -> None:
        """Answer a request about a job; if it has joined an earlier job, when that is stored, too."""
        if pending.remembered_in < 0:
            self._finish(pending, now).answer(view, payload, failure)
            return
        responder = self._finish(pending, now)
        self._store_access.when_saved(lambda _: responder.answer(view, payload, failure), (pending.remembered_in,))

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

    def _find_first(
        self,
        request: EnqueueRequest,
        payload: Payload,
        pending: PendingRequest,
        asked: RequestId | None,
        id: JobId,
        now: float,
    ) -> None:
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
                    if asked is not None:
                        made = JobId(bytes.fromhex(holder.id))
                        self._remember(asked, id, made, request, payload_of(request, payload), pending, then)
                    self._show_first(holder.id, pending, then)
                else:
                    placement.keys.drop(place, reserved.id)
                    self._enqueue(request, payload, pending, then)
            except OperationError as error:
                self._finish(pending, then).refuse(error.problem)
            self._request_tick()

        self._find_holders({place: reserved}, responder, known, now)

    def _show_first(self, id: str, pending: PendingRequest, now: float, forgotten: JobView | None = None) -> None:
        """Answer with a job of another shard, and its result if it has ended. `forgotten`: the answer if it is
        deleted."""
        assert self.brokers is not None
        assert pending.responder is not None
        self.brokers.ask(RESULT, ResultRequest(id=id), b"", FirstResponder(self, pending, forgotten), now)

    def answer_first(self, pending: PendingRequest, view: View, payload: Payload, failure: Failure | None) -> None:
        """Answer with the job of another shard that has the key."""
        self._answer_asked(pending, view, payload, failure, self._placement().now())

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
        asked: RequestId | None,
        now: float,
    ) -> None:
        """Accept a job when its predecessors in other shards are pinned. Shards may move meanwhile, and predecessors in
        its own may be deleted."""
        placement, brokers, responder = self.placement, self.brokers, pending.responder
        assert placement is not None
        assert brokers is not None
        assert responder is not None
        shard, owner = placement.shard_of(id), responder.owner.principal.name

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
                if asked is None or not self._is_repeated(asked, owner, id, request, body, pending, then):
                    job_options = options_of(request, then, self._offset, self.broker.policy.max_delay)
                    extras = extras_of(request)
                    extras = linked_extras(extras, request, body, self.broker, responder.owner.principal, foreign)
                    self._submit(request, body, pending, job_options, id, extras, asked, then)
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

    __slots__ = ("_forgotten", "_handlers", "_pending", "dialect", "origin", "owner")

    def __init__(self, handlers: EnqueueHandlers, pending: PendingRequest, forgotten: JobView | None) -> None:
        assert pending.responder is not None
        self._forgotten = forgotten  # the answer to a repeated request if its job is deleted
        self._handlers = handlers
        self._pending = pending
        self.owner: Owner = pending.responder.owner
        self.dialect = pending.responder.dialect
        self.origin = pending.responder.origin

    def answer(self, view: View, payload: Payload = b"", failure: Failure | None = None) -> None:
        self._handlers.answer_first(self._pending, view, payload, failure)

    def refuse(self, problem: ErrorView) -> None:
        if problem.kind == "not found" and self._forgotten is not None:
            self._handlers.answer_first(self._pending, self._forgotten, b"", None)
        else:
            self._handlers.finish(self._pending).refuse(problem)


def _mark(request: EnqueueRequest, body: Payload) -> str:
    """Return a text by which another job is noticed that comes with the free id of an earlier one."""
    return f"{digest(body).hex()} {request.service}"
