"""Handlers of the acts on many jobs: by filter, of a group of the quarantine, and of a whole service."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.commits import SETTINGS
from dragoman.core.model import Job, Payload
from dragoman.core.rights import ADMINISTER, CALL, Principal
from dragoman.core.states import ENDED
from dragoman.operations.bulk_acts import SHUTTING_DOWN, BulkAct, BulkActs, Handle, Matches
from dragoman.operations.bulk_schemas import (
    FIRST_JOBS,
    BulkRef,
    BulkRequest,
    BulkView,
    CancelJobsRequest,
    DeleteJobsRequest,
    RetryJobsRequest,
)
from dragoman.operations.handler_base import StoreAccess
from dragoman.operations.job_acts import cancel_job, delete_job, may_end, may_retry
from dragoman.operations.job_filter import JobFilter
from dragoman.operations.quarantine_groups import may_use, quarantine_view
from dragoman.operations.quarantine_schemas import RetryGroupRequest, RetryGroupView
from dragoman.operations.repeated_requests import answer_text, purge_id, request_id_of
from dragoman.operations.responders import Responder
from dragoman.operations.retry_handlers import BulkRetry, RetryHandlers
from dragoman.operations.schemas import EmptyRequest, OperationError, PurgeRequest, PurgeView
from dragoman.operations.table import PURGE
from dragoman.operations.visibility import ALL_SERVICES, signature
from dragoman.operations.visible_views import visible_job

PENDING: Final = ("dependent", "waiting", "delayed")


class BulkHandlers(RetryHandlers):
    """The functions of these operations. `bulk_acts` must be continued by `tick`."""

    def __init__(self, broker: Broker, store_access: StoreAccess, offset: Callable[[], float]) -> None:
        super().__init__(broker, store_access, offset)
        self.bulk_acts = BulkActs(broker, store_access.when_saved)
        self.read_match: Callable[[bool], bool] = bool  # the server sets it, for recordings

    # ---------------------------------------------------------------- by filter

    def retry_jobs(self, request: RetryJobsRequest, payload: Payload, responder: Responder, now: float) -> None:
        principal = responder.owner.principal
        outcome = request.outcome

        def matches(job: Job) -> bool:
            return job.quarantined and (outcome is None or job.outcome == outcome) and may_retry(principal, job)

        self._refuse_while_draining()
        self._begin_bulk("retry", "retry jobs", request, matches, BulkRetry(self), responder, now)

    def cancel_jobs(self, request: CancelJobsRequest, payload: Payload, responder: Responder, now: float) -> None:
        principal = responder.owner.principal
        states = _states_of(request.state)

        def matches(job: Job) -> bool:
            return job.state.value in states and may_end(principal, job)

        handle = partial(_cancel, self.broker, principal, states)
        self._begin_bulk("cancel", "cancel jobs", request, matches, handle, responder, now)

    def delete_jobs(self, request: DeleteJobsRequest, payload: Payload, responder: Responder, now: float) -> None:
        principal = responder.owner.principal
        outcome, quarantined = request.outcome, request.quarantined

        def matches(job: Job) -> bool:
            return (
                job.is_archived
                and (outcome is None or job.outcome == outcome)
                and (quarantined is None or job.quarantined == quarantined)
                and may_end(principal, job)
            )

        self._begin_bulk("delete", "delete jobs", request, matches, partial(_delete, self.broker), responder, now)

    def _begin_bulk(
        self,
        act: str,
        operation: str,
        request: BulkRequest,
        matches: Matches,
        handle: Handle,
        responder: Responder,
        now: float,
    ) -> None:
        self._refuse_while_loading()
        known = self.bulk_acts.find(request.id) if request.id is not None else None
        if known is not None:
            self._show_bulk(self._own_bulk(known, known.id, responder), responder, now)
            return
        filter = JobFilter(
            responder.owner.principal,
            self.broker,
            self._offset(),
            reason=request.reason,
            since=request.since,
            until=request.until,
            read_match=self.read_match,
        )
        others = [getattr(request, name, None) for name in ("service", "outcome", "state", "quarantined")]
        if not (request.all or filter.is_used or any(each is not None for each in others)):
            raise OperationError(
                "invalid", f"the request has no filter: it would {act} all jobs; name a service, or send all=true"
            )
        bulk = self._new_bulk(act, operation, request, handle, responder, now)
        service = request.service

        def matches_all(job: Job) -> bool:
            return (service is None or job.service.name == service) and matches(job) and filter.matches(job)

        bulk.is_counted_only = request.dry_run
        bulk.look_at(list(self.broker.jobs.values()), matches_all)
        self.bulk_acts.start(bulk, partial(self._show_bulk, bulk, responder, now), now)

    def _new_bulk(
        self, act: str, operation: str, request: BulkRequest, handle: Handle, responder: Responder, now: float
    ) -> BulkAct:
        self.bulk_acts.require_place(responder.owner)
        id = request.id if request.id is not None else self.broker.entropy.job_id().hex()
        return BulkAct(
            id,
            act,
            operation,
            responder.owner,
            handle,
            now,
            service=request.service or "",
            rate=request.rate,
            lease=request.lease,
            kept_first=FIRST_JOBS,
            origin=responder.origin,
        )

    def bulk_act(self, request: BulkRef, payload: Payload, responder: Responder, now: float) -> None:
        bulk = self._own_bulk(self.bulk_acts.find(request.id), request.id, responder)
        bulk.seen = now
        self._show_bulk(bulk, responder, now)

    def stop_bulk_act(self, request: BulkRef, payload: Payload, responder: Responder, now: float) -> None:
        bulk = self._own_bulk(self.bulk_acts.find(request.id), request.id, responder)
        self.bulk_acts.stop(bulk, partial(self._show_bulk, bulk, responder, now), now)

    def _own_bulk(self, bulk: BulkAct | None, id: str, responder: Responder) -> BulkAct:
        """Return the act if the principal has requested it, or administers all services. Raises OperationError."""
        principal = responder.owner.principal
        is_own = bulk is not None and bulk.owner.principal.name == principal.name
        if bulk is None or not (is_own or principal.rights.administers_all):
            if bulk is not None:
                self.broker.refused_rights.note(principal, ADMINISTER, (ALL_SERVICES,), responder.dialect)
            raise OperationError(
                "not found",
                f"no act on many jobs has id {id}: it never existed, it ended more than ten minutes ago, or the broker "
                "has been restarted; repeat the request for the jobs that are left",
            )
        return bulk

    def _show_bulk(self, bulk: BulkAct, responder: Responder, now: float) -> None:
        bulk.seen = max(bulk.seen, now)
        offset, principal = self._offset(), responder.owner.principal
        responder.answer(
            BulkView(
                id=bulk.id,
                act=bulk.act,  # type: ignore[arg-type]
                dry_run=bulk.is_counted_only,
                of=bulk.of,
                done=bulk.done,
                left_out=bulk.left_out,
                over=bulk.is_over and not bulk.is_saving,
                problem=bulk.problem,
                quarantined=bulk.quarantined,
                left_out_reason=bulk.left_out_reason,
                jobs=[visible_job(job, principal, self.broker, offset) for job in bulk.first],
            )
        )

    # ---------------------------------------------------------------- groups of the quarantine

    def quarantine(self, request: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._refuse_while_loading()
        groups = self.broker.job_registry.kept.quarantine
        responder.answer(quarantine_view(groups, responder.owner.principal, self._offset()))

    def retry_group(self, request: RetryGroupRequest, payload: Payload, responder: Responder, now: float) -> None:
        """Start to retry a group, or return the progress of the retry that this principal has started."""
        self._refuse_while_loading()
        self._refuse_while_draining()
        principal = responder.owner.principal
        bulk = self.bulk_acts.find_group(request.group, principal.name)
        if bulk is not None:
            responder.answer(RetryGroupView(group=request.group, retried=bulk.done, of=bulk.of))
            return
        self.bulk_acts.require_place(responder.owner)
        parts = self.broker.job_registry.kept.quarantine.parts_of(request.group)
        jobs = list(chain.from_iterable(part.jobs.values() for part in parts if may_use(principal, CALL, part)))
        bulk = BulkAct(
            self.broker.entropy.job_id().hex(),
            "retry",
            "retry group",
            responder.owner,
            BulkRetry(self),
            now,
            service=parts[0].service,
            rate=request.rate,
        )
        bulk.group = request.group
        bulk.add(jobs)
        self.bulk_acts.start(bulk, partial(_answer_group, bulk, responder), now)

    # ---------------------------------------------------------------- a whole service

    def _begin_purge(self, request: PurgeRequest, responder: Responder, now: float) -> None:
        """Cancel jobs of a service or delete their outcomes. A job whose state has changed before its turn is left
        unchanged."""
        self.bulk_acts.require_place(responder.owner)
        reason = f"purged {signature(responder.owner.principal, 'on request', 'by ')}"
        principal = responder.owner.principal.name
        asked = request_id_of(request.request_id)
        id = self.broker.entropy.job_id().hex() if asked is None else purge_id(principal, asked)
        handle = partial(_purge, self.broker, request.states, reason)
        bulk = BulkAct(id, "purge", "purge", responder.owner, handle, now, service=request.name)

        def matches(job: Job) -> bool:
            return job.service.name == request.name and job.state.value in request.states

        bulk.group = request.name  # the request is recorded as an act of an administrator already
        bulk.look_at(list(self.broker.jobs.values()), matches)
        self.bulk_acts.start(bulk, partial(self._answer_purge, bulk, responder, request), now)

    def _answer_purge(self, bulk: BulkAct, responder: Responder, request: PurgeRequest) -> None:
        if not bulk.is_over:
            bulk.waiting.append(partial(self._answer_purge, bulk, responder, request))
            return
        view, asked = PurgeView(name=bulk.service, purged=bulk.done), request_id_of(request.request_id)
        if asked is None or self.placement is not None:  # in a cluster, each broker remembers its part in memory
            responder.answer(view)
            return
        principal, now = responder.owner.principal.name, bulk.ended_at
        self.broker.job_registry.remembered.accept(asked, principal, 0, now, answer_text(PURGE, request, view))
        self._answer_when_saved(responder, lambda: view, SETTINGS)

    def _refuse_while_draining(self) -> None:
        if self.broker.dispatch.is_draining:
            raise OperationError("draining", SHUTTING_DOWN)


def _states_of(state: str | None) -> tuple[str, ...]:
    """Return the states of jobs that are to be cancelled. None: all that have not ended."""
    if state is None:
        return (*PENDING, "running")
    return PENDING if state == "pending" else (state,)


def _cancel(broker: Broker, principal: Principal, states: tuple[str, ...], job: Job, now: float) -> None:
    if job.state is not ENDED:  # the error about one that has ended says how it did
        _refuse_another_state(job, states)
    cancel_job(broker, job, principal, now)


def _refuse_another_state(job: Job, states: tuple[str, ...]) -> None:
    """Raise OperationError if the job has left these states since the act began."""
    if job.state.value not in states:
        raise OperationError("conflict", f"job {job.id.hex()} is {job.state.value} by now")


def _delete(broker: Broker, job: Job, now: float) -> None:
    delete_job(broker, job)


def _purge(broker: Broker, states: tuple[str, ...], reason: str, job: Job, now: float) -> None:
    _refuse_another_state(job, states)
    if job.state is ENDED:
        delete_job(broker, job)
    else:
        broker.withdraw(job, now, reason)


def _answer_group(bulk: BulkAct, responder: Responder) -> None:
    responder.answer(RetryGroupView(group=bulk.group, retried=bulk.done, of=bulk.of))
