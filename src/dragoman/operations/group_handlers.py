"""Handlers of the operations on batches and groups of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from dragoman.core.bulk import NewJob, Refusal
from dragoman.core.deadlines import Deadlines
from dragoman.core.eviction import is_fate_unknown
from dragoman.core.groups import Group
from dragoman.core.model import Job, JobId, Payload
from dragoman.core.states import ENDED
from dragoman.operations.batches import BatchReader, named, repeated_group
from dragoman.operations.error_kinds import ERROR_KINDS
from dragoman.operations.group_results import send_results
from dragoman.operations.group_schemas import (
    EnqueueManyRequest,
    EnqueueManyView,
    GroupRef,
    GroupResultsRequest,
    GroupView,
)
from dragoman.operations.group_views import group_view
from dragoman.operations.list_handlers import ListHandlers
from dragoman.operations.pins import Pins
from dragoman.operations.placement import Placement
from dragoman.operations.reserved_keys import Reserving, keys_of
from dragoman.operations.responders import PendingRequest, Responder
from dragoman.operations.schemas import ErrorView, OperationError
from dragoman.operations.visibility import signature

NOTHING_TAKEN: Final[Mapping[int, str]] = {}
CANCELS: Final = 1_000  # jobs cancelled in one iteration


class GroupHandlers(ListHandlers):
    """The operations `enqueue many`, `group`, `group results` and `cancel group`."""

    _waiting: Deadlines[PendingRequest]

    def enqueue_many(self, request: EnqueueManyRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._refuse_while_loading()
        owner = responder.owner
        reader = BatchReader(request, payload, self.broker, owner.principal, now, self._offset, self.placement)
        if reader.found is not None:
            self._answer_batch([], reader, [], responder, reader.names())
            return
        group = repeated_group(request, reader, self.broker, owner.principal.name)
        if group is not None:
            self._answer_batch([each for each in group.jobs if each is not None], reader, [], responder)
            return
        orders = reader.read()
        if self.placement is not None and reader.foreign:
            self._pin_batch(self.placement, reader, orders, responder, now)
        elif self.placement is not None and any(each.key is not None for each in orders):
            self._reserve_batch(self.placement, reader, orders, responder, now)
        else:
            self._submit_batch(reader, orders, responder, now)

    def _pin_batch(
        self, placement: Placement, reader: BatchReader, orders: list[NewJob], responder: Responder, now: float
    ) -> None:
        """Accept a batch when its predecessors in other shards are pinned."""

        def pinned(problem: ErrorView | None, index: int) -> None:
            try:
                if problem is not None:
                    raise named(index, OperationError(problem.kind, problem.detail))
                reason = placement.elsewhere(reader.home)
                if reason is not None:
                    raise OperationError("partitioned", reason)
                if any(each.key is not None for each in orders):
                    self._reserve_batch(placement, reader, orders, responder, placement.now())
                else:
                    self._submit_batch(reader, orders, responder, placement.now())
            except OperationError as error:
                responder.refuse(error.problem)
            self._request_tick()

        assert self.brokers is not None
        Pins(placement, reader.home, reader.foreign, pinned).begin(self.brokers, responder, now)

    def _reserve_batch(
        self, placement: Placement, reader: BatchReader, orders: list[NewJob], responder: Responder, now: float
    ) -> None:
        """Accept a batch when its keys are reserved, each in its own shard. If a job has a key already, it takes the
        place of the new one, as with one broker."""
        if self.broker.bulk.is_repeated(orders, responder.owner):
            self._submit_batch(reader, orders, responder, now)
            return
        brokers = self.brokers
        assert brokers is not None
        ids = [each.id for each in orders]
        reserving = Reserving(placement, reader.home, responder.owner.principal.name, keys_of(orders), responder)

        def reserved(problem: ErrorView | None, index: int | None, taken: dict[int, str]) -> None:
            refusal = None
            try:
                if problem is not None:
                    error = OperationError(problem.kind, problem.detail)
                    raise error if index is None else named(index, error)
                reserving.check()
                self._submit_batch(reader, orders, responder, placement.now(), taken)
            except OperationError as error:
                refusal = error.problem
            placement.keys.accepted(ids)
            reserving.settle()
            if refusal is not None:
                reserving.undo(brokers, self.broker.jobs, placement.now())
                responder.refuse(refusal)
            self._request_tick()

        placement.keys.accept(ids)
        reserving.begin(brokers, reserved, now)

    def _submit_batch(
        self,
        reader: BatchReader,
        orders: list[NewJob],
        responder: Responder,
        now: float,
        taken: Mapping[int, str] = NOTHING_TAKEN,
    ) -> None:
        """Accept a batch. `taken`: jobs of other shards that have keys of the batch already, by index."""
        reader.look()
        if reader.found is not None:  # a copy of the request was faster
            self._answer_batch([], reader, [], responder, reader.names())
            return
        owner = responder.owner
        new = [index for index in range(len(orders)) if index not in taken]
        for index, id in taken.items():
            extras = orders[index].extras
            if extras is not None and extras.group is not None:
                detail = f"job {id} has the key '{orders[index].key}' already; a job of a group must be a new one"
                raise named(index, OperationError("key reused", detail))
        try:
            jobs = (
                self.broker.bulk.submit([orders[index] for index in new], owner, responder.dialect, now) if new else []
            )
        except Refusal as refusal:
            error = OperationError(ERROR_KINDS[refusal.reason], refusal.text)
            raise error if refusal.index is None else named(new[refusal.index], error) from None
        groups = dict.fromkeys(each.extras.group for each in orders if each.extras is not None)
        names_by_index = dict(taken) | {index: job.id.hex() for index, job in zip(new, jobs, strict=True)}
        names = [names_by_index[index] for index in range(len(orders))]
        made = [id for id in groups if id is not None]
        undo = None
        if reader.asked is not None:
            remembered, shard = self.broker.job_registry.remembered, max(0, reader.home)
            row = remembered.accept(reader.asked, owner.principal.name, shard, now, reader.answer(names))
            undo = partial(remembered.undo, row, reader.asked.number)
        self._answer_batch(jobs, reader, made, responder, names, undo)

    def _answer_batch(
        self,
        jobs: list[Job],
        reader: BatchReader,
        made: list[JobId],
        responder: Responder,
        names: list[str] | None = None,
        undo: Callable[[], None] | None = None,
    ) -> None:
        """Answer after the commit. `made`: the groups that are new, and dropped if they cannot be stored. `names`: ids
        of all jobs, if not all are here. `undo`: called if they cannot be stored."""
        group = reader.group

        def saved(problem: str | None) -> None:
            if problem is None:
                ids = [each.id.hex() for each in jobs] if names is None else names
                responder.answer(EnqueueManyView(jobs=ids, group=group.hex() if group is not None else None))
                return
            if is_fate_unknown(problem):
                responder.refuse(ErrorView(kind="partitioned", detail=problem))
                return
            if undo is not None:
                undo()
            groups = self.broker.job_registry.groups
            for id in made:
                if id in groups.by_id:
                    groups.delete(groups.by_id[id])
            count = len(jobs) if names is None else len(names)
            detail = f"{problem}; none of the {count} jobs was enqueued"
            responder.refuse(ErrorView(kind="store unavailable", detail=detail))

        shards = dict.fromkeys([*self._shards(*[job.id for job in jobs], *made), max(0, reader.home)])
        self._store_access.when_saved(saved, tuple(shards), is_answer=True)

    def group(self, request: GroupRef, payload: Payload, responder: Responder, now: float) -> None:
        group = self.targets.group(request.id)
        self._store_access.when_saved(
            lambda _: responder.answer(group_view(group, self._offset())), self._shards(group.id)
        )

    def group_results(
        self, request: GroupResultsRequest, payload: Payload, responder: Responder, now: float
    ) -> PendingRequest | None:
        """Answer with a page of results, when the group is complete or after `wait` seconds."""
        group = self.targets.group(request.id)
        if group.is_complete or request.wait <= 0.0 or request.start:
            self._send_page(group, request.start, responder)
            return None
        pending = PendingRequest(self, responder, now + request.wait)
        pending.group = group
        self.broker.job_registry.groups.attend(group, pending)
        self._waiting.arm(pending, pending.due)
        return pending

    def _send_page(self, group: Group, start: int, responder: Responder) -> None:
        """Send results that are committed (R103)."""
        self._store_access.when_saved(
            lambda _: send_results(group, start, self._store_access, self.broker, responder), self._shards(group.id)
        )

    def cancel_group(self, request: GroupRef, payload: Payload, responder: Responder, now: float) -> None:
        self._refuse_while_loading()
        group = self.targets.group(request.id)
        principal = responder.owner.principal
        by = "on request" if group.owner == principal.name else signature(principal, "on request", "by ")
        work = GroupCancel(self, group, f"cancelled {by}, with its group")

        def cancelled(_: object) -> None:
            self._answer_when_saved(responder, lambda: group_view(group, self._offset()), self._shards(group.id))

        self.slices.add(work, cancelled)
        self._request_tick()


class GroupCancel:
    """Cancels the jobs of a group in batches, so that the broker is not blocked."""

    def __init__(self, handlers: GroupHandlers, group: Group, reason: str) -> None:
        self._handlers = handlers
        self._group = group
        self._reason = reason
        self._next = 0

    def step(self, now: float) -> GroupView | None:
        """Cancel the next batch. Returns None if jobs are left."""
        group, broker = self._group, self._handlers.broker
        end = min(self._next + CANCELS, group.size)
        for place in range(self._next, end):
            job = group.jobs[place]
            if job is not None and job.state is not ENDED:
                broker.withdraw(job, now, self._reason)
        self._next = end
        return group_view(group, 0.0) if end == group.size else None
