"""Handles the broker's operations: enqueue, show, cancel and retry jobs; pause services; drain workers; set schedules.

An operation has a name, a request and, for some, a payload. Its responder receives one response or error, now or later.
An operation that writes is answered after its commit. The handlers are a recipient of effects like a dialect's broker
side: a request that waits until a job is accepted or has ended is one of their callers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from dragoman.core.broker import Broker
from dragoman.core.commits import SETTINGS
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import DeliverOutcome, Effect
from dragoman.core.eviction import NOT_KNOWN
from dragoman.core.groups import GroupCompleted
from dragoman.core.histogram import Histogram
from dragoman.core.infinity import inf
from dragoman.core.interim_effects import Acknowledge
from dragoman.core.job_extras import JobExtras
from dragoman.core.model import Job, JobId, Payload
from dragoman.core.rights import CALL
from dragoman.core.states import ENDED
from dragoman.operations.cluster_schemas import BrokerRef, ClusterView
from dragoman.operations.enqueue_handlers import EnqueueHandlers
from dragoman.operations.error_kinds import ERROR_KINDS
from dragoman.operations.event_sources import EventSources
from dragoman.operations.handler_base import StoreAccess as StoreAccess
from dragoman.operations.internal_table import INTERNAL
from dragoman.operations.job_acts import cancel_job, delete_job
from dragoman.operations.job_details import send_payload, show_job
from dragoman.operations.job_options import delayed_options
from dragoman.operations.list_schemas import FindJobRequest
from dragoman.operations.metric_sources import MetricSources
from dragoman.operations.operation import Operation
from dragoman.operations.pauses import store_pause
from dragoman.operations.permissions import Permissions
from dragoman.operations.placement import check_shared
from dragoman.operations.recorded_requests import record_request, record_response, status_of
from dragoman.operations.repeated_requests import (
    ACTS,
    find_repeated,
    purge_id,
    remembered_view,
    request_id_of,
)
from dragoman.operations.responders import PendingRequest, Responder
from dragoman.operations.scheduled_run import ScheduledRun, forbidden_run
from dragoman.operations.scheduler import Scheduler, ScheduleState
from dragoman.operations.schemas import (
    AccessView,
    DrainRequest,
    EmptyRequest,
    ErrorView,
    HealthView,
    JobAct,
    JobRef,
    JobView,
    OperationError,
    PauseRequest,
    PurgeRequest,
    ResultRequest,
    ServiceRef,
    WorkerRef,
)
from dragoman.operations.seen_links import with_seen_links
from dragoman.operations.table import CANCEL, DELETE, ENQUEUE, OPERATIONS, PURGE, RESULT
from dragoman.operations.targets import LOADING, Targets
from dragoman.operations.views import job_view
from dragoman.operations.visibility import reads_job, sees_service, signature
from dragoman.operations.visible_views import visible_health
from dragoman.operations.why import why_view

ClusterNumbers = dict[str, list[tuple[dict[str, str], float]]]  # labels and value of each sample, by metric
UNTIL_ENDED: Final = 1e18  # time of a request that waits for the outcome of its job without a limit
LOADING_TICK: Final = 0.2  # seconds between two ticks while jobs of an earlier run are being loaded


class StoreStatus(Protocol):
    """State of the store: the problem that prevents writing, or None; durations of commits."""

    @property
    def problem(self) -> str | None: ...

    @property
    def commits(self) -> Histogram: ...


class OperationHandlers(EnqueueHandlers):
    """The functions of all operations: for each row of the table, the method with its name."""

    dialect = "operations"

    def __init__(
        self,
        broker: Broker,
        store_access: StoreAccess,
        store: StoreStatus,
        offset: Callable[[], float],
        show_health: Callable[[], HealthView],
    ) -> None:
        forbidden = partial(forbidden_run, broker.principals)
        scheduler = Scheduler(self._submit_run, store_access.note, self._has_ended, forbidden)
        super().__init__(broker, store_access, offset, scheduler)
        self.store = store
        self._show_health = show_health
        self._waiting: Deadlines[PendingRequest] = Deadlines()
        self.bulk_acts.wake = self._wake
        scheduler.find_run = self._find_run
        self.targets = Targets(broker, scheduler)
        self.permissions = Permissions(broker, self.targets)
        self.reload_table: Callable[[], AccessView] = no_table  # the server sets it; raises OperationError
        self.let_go: Callable[[str, float], bool] = lambda broker, now: False  # likewise
        self.cluster_numbers: Callable[[], ClusterNumbers] = dict  # likewise
        self.event_sources: EventSources | None = None  # likewise
        self.metric_sources: MetricSources | None = None  # likewise
        self.show_cluster: Callable[[], ClusterView] = no_cluster  # likewise

    # ---------------------------------------------------------------- operations

    def ask(
        self, operation: str, request: Any, payload: Payload, responder: Responder, now: float, is_here: bool = False
    ) -> PendingRequest | None:
        """Execute an operation. Returns the pending request if it may wait; `leave` drops it. `is_here`: this broker
        executes it, whatever brokers of its cluster there are."""
        self._next_tick = -inf
        row = OPERATIONS.get(operation) or INTERNAL[operation]
        if self.brokers is not None and not is_here:
            return self.brokers.ask(row, request, payload, responder, now)
        act = None
        try:
            rights = responder.owner.principal.rights
            # `enqueue` is frequent. For a principal that may call the service, there is no more to check.
            if row is not ENQUEUE or not (rights.calls_all or rights.may(CALL, request.service)):
                if row in ACTS and request.request_id is not None:
                    if self._answer_again(row, request, responder, now):
                        return None
                act = self.permissions.check(row, request, responder)
            if self.placement is not None:
                check_shared(self.placement, row)
            pending: PendingRequest | None = FUNCTIONS[operation](self, request, payload, responder, now)
        except OperationError as error:
            responder.refuse(error.problem)
            return None
        if act is not None:
            self.permissions.record(row, act, responder)
        return pending

    def _answer_again(self, row: Operation[Any, Any], request: Any, responder: Responder, now: float) -> bool:
        """Answer a request that was carried out before, as the first time. False: it is new. Raises OperationError."""
        asked, principal = request_id_of(request.request_id), responder.owner.principal.name
        assert asked is not None
        if row is PURGE:
            bulk = self.bulk_acts.find(purge_id(principal, asked))
            if bulk is not None:
                if bulk.is_over and not bulk.waiting:
                    self._answer_purge(bulk, responder, request)
                else:
                    bulk.waiting.append(partial(self._answer_purge, bulk, responder, request))
                return True
        shards = self._shards(bytes.fromhex(request.id)) if isinstance(request, JobAct) else SETTINGS
        found = find_repeated(self.broker, asked, principal, shards[0], now)
        if found is None:
            return False
        view = remembered_view(row, request, found)
        self._answer_when_saved(responder, lambda: view, shards)
        return True

    def job(self, request: JobRef, payload: Payload, responder: Responder, now: float) -> None:
        job = self.targets.job(request.id)
        is_full = reads_job(responder.owner.principal, job)
        durability = self.durability() if job.options.durable else None
        show_job(job, self.broker, self._store_access, self._offset(), responder, is_full, durability)

    def find_job(self, request: FindJobRequest, payload: Payload, responder: Responder, now: float) -> None:
        if self._finds_elsewhere(request, responder, now):
            return
        job = self.permissions.job_with_key(request, responder)
        show_job(job, self.broker, self._store_access, self._offset(), responder, is_full=True)

    def payload(self, request: JobRef, payload: Payload, responder: Responder, now: float) -> None:
        job = self.targets.job(request.id)
        send_payload(job, self._store_access, partial(self._job_view, job, responder), responder)

    def result(
        self, request: ResultRequest, payload: Payload, responder: Responder, now: float
    ) -> PendingRequest | None:
        """Answer with the outcome and the result; or with the job's state, if it has not ended after `wait` seconds."""
        job = self.targets.job(request.id)
        if job.state is not ENDED and request.wait <= 0.0:
            responder.answer(self._job_view(job, responder))
            return None
        record_request(job, RESULT, responder, 0, now)
        pending = PendingRequest(self, responder, now + request.wait)
        if self.broker.job_registry.kept.attend(job, pending) and pending.due > now:
            self._waiting.arm(pending, pending.due)
        return pending

    def why(self, request: JobRef, payload: Payload, responder: Responder, now: float) -> None:
        job = self.targets.job(request.id)
        principal = responder.owner.principal
        is_queue_seen = sees_service(principal, job.service.name)
        problem = self.store.problem if self.placement is None else self.placement.problem_of(job.id)
        responder.answer(why_view(job, self.broker, now, problem, self.rates, is_queue_seen, principal))

    def cancel(self, request: JobRef, payload: Payload, responder: Responder, now: float) -> None:
        job = self.targets.job(request.id)
        record_request(job, CANCEL, responder, 0, now)
        cancel_job(self.broker, job, responder.owner.principal, now)
        record_response(job, responder, CANCEL.status, 0, now)
        self._answer_when_saved(responder, partial(self._job_view, job, responder), self._shards(job.id))

    def retry(self, request: JobAct, payload: Payload, responder: Responder, now: float) -> None:
        """Retry a quarantined job. A client that repeats the request gets the job that the first one created."""
        job = self.targets.job(request.id)
        if job.quarantined and self.is_loading:
            raise OperationError("loading", LOADING)  # an earlier retry of it may be among them
        self._retry(job, request, responder, now)

    def delete(self, request: JobAct, payload: Payload, responder: Responder, now: float) -> None:
        job = self.targets.job(request.id)
        view = self._job_view(job, responder)
        if job.state is ENDED and not job.is_told:  # its outcome is being stored
            stored = partial(self._delete_stored, job, view, request, responder, now)
            self._store_access.when_saved(stored, self._shards(job.id))
            return
        self._delete_now(job, view, request, responder, now)

    def _delete_stored(
        self, job: Job, view: JobView, request: JobAct, responder: Responder, now: float, problem: str | None
    ) -> None:
        if job.is_archived:
            self._delete_now(job, view, request, responder, now)
        else:  # its outcome is not kept, and it is gone
            self._answer_act(DELETE, request, view, responder, self._shards(job.id), now)

    def _delete_now(self, job: Job, view: JobView, request: JobAct, responder: Responder, now: float) -> None:
        shards = self._shards(job.id)
        delete_job(self.broker, job)
        self._answer_act(DELETE, request, view, responder, shards, now)

    def service(self, request: ServiceRef, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self._service_view(self.targets.service(request.name), now))

    def pause(self, request: PauseRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._check_service_name(request.name)
        by = signature(responder.owner.principal, request.by)
        service = self.broker.operator.pause(request.name, by, now, responder.owner)
        if service is None:
            raise self._too_many_services()
        store_pause(service, self._store_access.note, self._offset())
        self._answer_when_saved(responder, lambda: self._service_view(service, now), SETTINGS)

    def resume(self, request: ServiceRef, payload: Payload, responder: Responder, now: float) -> None:
        service = self.targets.service(request.name)
        self.broker.operator.resume(request.name, now)
        store_pause(service, self._store_access.note, self._offset())
        self._answer_when_saved(responder, lambda: self._service_view(service, now), SETTINGS)

    def purge(self, request: PurgeRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._refuse_while_loading()
        self.targets.service(request.name)
        self._begin_purge(request, responder, now)

    def worker(self, request: WorkerRef, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self._worker_view(self.targets.worker(request.id), responder.owner.principal, now))

    def drain(self, request: DrainRequest, payload: Payload, responder: Responder, now: float) -> None:
        worker, principal = self.targets.worker(request.id), responder.owner.principal
        by = signature(principal, "an operator")
        before = self.broker.job_registry.pending_commits.newest
        self.broker.availability.drain(worker, now, at_once=request.now, stays=worker.profile.comes_back, by=by)
        shards = self.broker.job_registry.pending_commits.saved_since(before)
        self._answer_when_saved(responder, lambda: self._worker_view(worker, principal, now), shards)

    def health(self, request: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(visible_health(self._show_health(), responder.owner.principal))

    def cluster(self, request: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self.show_cluster())

    def release_shards(self, request: BrokerRef, payload: Payload, responder: Responder, now: float) -> None:
        view = self.show_cluster()
        if not self.let_go(request.broker, now):
            names = ", ".join(each.name for each in view.members)
            raise OperationError("not found", f"no broker named {request.broker!r} is heard; the cluster has {names}")
        responder.answer(view)

    def reload_access(self, request: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self.reload_table())

    # ---------------------------------------------------------------- effects and time

    def execute(self, effect: Effect, now: float) -> None:
        self._next_tick = -inf
        if isinstance(effect, Acknowledge):
            pending = effect.caller
            assert isinstance(pending, PendingRequest)
            if pending.due == inf:  # else it waits for the outcome
                record_response(effect.job, pending.responder, ENQUEUE.status, 0, now)
                view = job_view(effect.job, self._offset())
                if self.placement is not None:
                    view.durability = self.durability()
                self._answer_asked(pending, view, b"", None, now)
        elif isinstance(effect, DeliverOutcome):
            pending = effect.caller
            assert isinstance(pending, PendingRequest)
            job = effect.job
            if job is None or effect.refusal is not None:
                kind = ERROR_KINDS.get(effect.refusal, "busy") if effect.refusal is not None else "busy"
                self._finish(pending, now).refuse(ErrorView(kind=kind, detail=effect.reason))  # type: ignore[arg-type]
            elif job.outcome is not effect.outcome:  # the outcome of the job could not be delivered
                self._finish(pending, now).refuse(ErrorView(kind="internal", detail=effect.reason))
            else:
                record_response(job, pending.responder, status_of(effect.outcome), len(effect.result), now)
                view = self._job_view(job, pending)
                self._answer_asked(pending, view, effect.result, effect.failure, now)
        elif isinstance(effect, GroupCompleted):
            pending = effect.caller
            assert isinstance(pending, PendingRequest)
            self._send_page(effect.group, 0, self._finish(pending, now))
        # Progress and parts are published as events, not returned here.

    def refuse_unstored(self, reason: str, now: float) -> None:
        """Refuse the clients that wait until something is stored: that may take long. Their jobs stay."""
        self._next_tick = -inf
        commits, problem = self.broker.job_registry.pending_commits, f"{reason}; {NOT_KNOWN}"
        for id in [id for shard in commits.holding() for id in commits.held_jobs(shard)]:
            job = self.broker.jobs.get(id)
            for caller in list(job.callers) if job is not None else ():
                if type(caller) is PendingRequest and caller.responder is not None and caller.due == inf:
                    self._finish(caller, now).refuse(ErrorView(kind="partitioned", detail=problem))
        self._store_access.refuse_answers(problem)

    def leave(self, pending: PendingRequest, now: float) -> None:
        """Drop a request whose client has disconnected."""
        self._next_tick = -inf
        if type(pending) is not PendingRequest:
            assert self.brokers is not None
            self.brokers.leave(pending, now)
        elif pending.responder is not None:
            self._finish(pending, now)

    def close(self, now: float) -> None:
        """Answer all requests that wait for an outcome with the state of their job: the broker stops."""
        self._end_waits(inf, now)

    def tick(self, now: float) -> float:
        if now < self._next_tick:  # nearly always: called in every iteration of the event loop
            return self._next_tick
        self._end_waits(now, now)
        self.slices.step(now)
        due = self.scheduler.tick(now, now + self._offset()) if not self.is_loading else now + LOADING_TICK
        due = min(due, self.bulk_acts.step(now), self._sweep_keys(now), self._sweep_requests(now))
        self._next_tick = now if not self.slices.is_empty else min(due, self._waiting.next())
        return self._next_tick

    # ---------------------------------------------------------------- helpers

    def load_schedules(self, notes: dict[str, str], now: float) -> None:
        """Make the runs of these schedules from now on: another broker of the cluster has made them before."""
        self.scheduler.load(notes, now, now + self._offset())
        self._wake()
        self._request_tick()

    def _sweep_requests(self, now: float) -> float:
        """Forget clients that have been silent for long. Returns the time of the next call."""
        remembered = self.broker.job_registry.remembered
        return remembered.sweep(now) if remembered else inf

    def _wake(self) -> None:
        """Let the next iteration look for what is due."""
        self._next_tick = -inf

    def _job_view(self, job: Job, reader: Responder | PendingRequest) -> JobView:
        return with_seen_links(job_view(job, self._offset()), job, reader.owner.principal, self.broker)

    def _submit_run(self, state: ScheduleState, payload: bytes, key: str, now: float) -> JobId | None:
        if self.placement is None and self.store.problem is not None:
            return None
        request = state.request
        owner = self.broker.owners.of_stored(self.broker.principals.named(state.owner))
        run = ScheduledRun(self.scheduler, request.name, owner)
        pending = PendingRequest(self, run, UNTIL_ENDED)
        extras = JobExtras(tenant=request.tenant) if request.tenant else None
        id = None
        if self.placement is not None and (id := self.placement.run_id()) is None:
            return None
        job = self.broker.submit(
            request.service, payload, pending, delayed_options(request), now, key=key, id=id, extras=extras
        )
        run.job = job.id if job is not None else None
        return run.job

    def _has_ended(self, id: JobId) -> bool:
        job = self.broker.jobs.get(id)
        return job is None or job.state is ENDED

    def _find_run(self, id: str) -> JobView | None:
        job = self.broker.jobs.get(JobId(bytes.fromhex(id)))
        return None if job is None else job_view(job, self._offset())

    def _end_waits(self, due: float, now: float) -> None:
        """Answer the requests whose `wait` ends by `due` with the state of their job."""
        for pending in self._waiting.due(due):
            group = pending.group
            if group is not None:
                self._send_page(group, 0, self._finish(pending, now))
                continue
            job = pending.job
            assert job is not None
            if job.state is not ENDED:  # else it receives the outcome after its commit
                record_response(job, pending.responder, 202, 0, now)
                self._finish(pending, now).answer(self._job_view(job, pending))


def no_table() -> AccessView:
    """Refuse to reload: the broker was started without an access table."""
    raise OperationError("conflict", "this broker has no access table; start it with an access folder")


def no_cluster() -> ClusterView:
    """Refuse to show the cluster: there is none."""
    raise OperationError("conflict", "this broker is in no cluster; start it with --cluster nats://HOST")


# The function of each operation: the method of its name, or the one that is named here.
METHODS: Final = {"broker": "show_broker", "listeners": "show_listeners"}
FUNCTIONS: Final[dict[str, Callable[..., PendingRequest | None]]] = {
    name: getattr(OperationHandlers, METHODS.get(name, row.python_name))
    for name, row in (OPERATIONS | INTERNAL).items()
}
