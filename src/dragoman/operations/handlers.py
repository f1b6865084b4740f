"""Handles the broker's operations: enqueue, show, cancel and retry jobs; pause services; drain workers; manage
schedules.

An operation has a name, a request and perhaps a payload. Its responder receives one answer, at once or later. An
operation that writes is answered after its commit. The handlers are a recipient like a dialect's broker side: a request
that waits for a job's acknowledgement or its outcome is one of its callers.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

from msgspec.structs import replace

from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import Acknowledge, DeliverOutcome, Effect
from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.infinity import inf
from dragoman.core.model import Job, JobId, Payload, Service, WorkerId
from dragoman.core.names import is_name
from dragoman.core.recipients import TimedRecipient
from dragoman.core.states import DONE, ENDED, RefusalReason
from dragoman.operations.job_details import send_payload, show_job
from dragoman.operations.job_options import job_options_for, options_of
from dragoman.operations.payloads import payload_of
from dragoman.operations.purge import Purge
from dragoman.operations.responders import NULL_RESPONDER, PendingRequest, Responder
from dragoman.operations.scheduled_run import ScheduledRun
from dragoman.operations.scheduler import Scheduler
from dragoman.operations.schemas import (
    DrainRequest,
    EmptyRequest,
    EnqueueRequest,
    ErrorView,
    HealthView,
    JobRef,
    JobsView,
    JobView,
    ListJobsRequest,
    OperationError,
    PauseRequest,
    PurgeRequest,
    ResultRequest,
    ScheduleRef,
    ScheduleRequest,
    SchedulesView,
    ServiceRef,
    ServicesView,
    ServiceView,
    View,
    WhyView,
    WorkerRef,
    WorkersView,
    WorkerView,
)
from dragoman.operations.table import OPERATIONS
from dragoman.operations.views import job_view, service_views, worker_view
from dragoman.operations.why import why

UNTIL_LOADED: Final = 0.2  # seconds between two looks whether all jobs of an earlier run are loaded
STILL_READ: Final = "jobs of the last run are still being read: ask again in a moment"


class StoreAccess(Protocol):
    """The part of the runner that operations call."""

    def note(self, key: str, value: str | None) -> None: ...

    def when_saved(self, call: Callable[[str | None], None]) -> None: ...

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None: ...


class StoreStatus(Protocol):
    @property
    def problem(self) -> str | None: ...

    @property
    def commits(self) -> Histogram: ...


class OperationHandlers(TimedRecipient):
    dialect = "desk"

    def __init__(
        self,
        broker: Broker,
        line: StoreAccess,
        store: StoreStatus,
        offset: Callable[[], float],
        show_health: Callable[[], HealthView],
    ) -> None:
        self.broker = broker
        self._store_access = line
        self.store = store
        self._offset = offset  # seconds that the wall clock is ahead of the clock of jobs
        self._show_health = show_health
        self._waiting: Deadlines[PendingRequest] = Deadlines()
        self._purges: list[tuple[Purge, Responder]] = []
        self._next_look = -inf  # time at which something here may be due
        self.scheduler = Scheduler(self._submit_recurring, line.note, self._is_over)

    @property
    def is_loading(self) -> bool:
        """Whether jobs of an earlier run are still being read: until then, not every job is known."""
        return self.broker.job_registry.is_loading

    # ---------------------------------------------------------------- operations

    def ask(
        self, question: str, form: Any, payload: Payload, responder: Responder, now: float
    ) -> PendingRequest | None:
        """Perform an operation. Returns the pending request if it waits for a job; `leave` abandons that."""
        self._next_look = -inf
        try:
            pending: PendingRequest | None = FUNCTIONS[question](self, form, payload, responder, now)
        except OperationError as error:
            responder.refuse(error.problem)
            return None
        return pending

    def enqueue(self, form: EnqueueRequest, payload: Payload, responder: Responder, now: float) -> PendingRequest:
        job_options = options_of(form, now, self._offset, self.broker.policy.max_delay)
        if form.key is not None and self.is_loading:
            raise OperationError("loading", "jobs of the last run are still being read: keys cannot be looked up yet")
        pending = PendingRequest(self, responder, inf)
        body = payload_of(form, payload)
        self.broker.submit(form.service, body, pending, job_options, now, key=form.key, owner=responder.owner)
        return pending

    def job(self, form: JobRef, payload: Payload, responder: Responder, now: float) -> None:
        show_job(self._find(form.id), self._store_access, self._offset(), responder)

    def payload(self, form: JobRef, payload: Payload, responder: Responder, now: float) -> None:
        send_payload(self._find(form.id), self._store_access, self._offset(), responder)

    def result(self, form: ResultRequest, payload: Payload, responder: Responder, now: float) -> PendingRequest | None:
        """Answer with the outcome and the bytes of the result, or with the state of the job once `wait` is over."""
        job = self._find(form.id)
        if job.state is not ENDED and form.wait <= 0.0:
            responder.answer(job_view(job, self._offset()))
            return None
        pending = PendingRequest(self, responder, now + form.wait)
        if self.broker.job_registry.attend(job, pending) and pending.due > now:
            self._waiting.arm(pending, pending.due)
        return pending

    def why(self, form: JobRef, payload: Payload, responder: Responder, now: float) -> None:
        job = self._find(form.id)
        responder.answer(WhyView(id=form.id, why=why(job, self.broker, now, self.store.problem)))

    def cancel(self, form: JobRef, payload: Payload, responder: Responder, now: float) -> None:
        job = self._find(form.id)
        if not self.broker.withdraw(job, now, "cancelled on request"):
            raise OperationError("conflict", f"it has ended already: {job.outcome}")
        self._answer_when_saved(responder, lambda: job_view(job, self._offset()))

    def retry(self, form: JobRef, payload: Payload, responder: Responder, now: float) -> None:
        """Retry a job. A second request, after a lost answer, returns the job that the first one made."""
        job = self._find(form.id)
        again = self._retried(job)
        if again is None:
            if not job.quarantined:
                raise OperationError("conflict", "only a job in quarantine can be tried again")
            if self.is_loading:
                raise OperationError(
                    "loading", "jobs of the last run are still being read: it may have been tried again"
                )
            again = self.broker.retry(job, now)
        if again is None:
            raise OperationError("busy", "there is no room for it, or the broker is about to stop")
        self._answer_when_saved(responder, partial(self._job_view, again))

    def jobs(self, form: ListJobsRequest, payload: Payload, responder: Responder, now: float) -> None:
        """List jobs, newest first."""
        self._refuse_while_loading()
        offset = self._offset()
        found = list(islice(self._matching(form), form.limit + 1))
        more = found[form.limit - 1].id.hex() if len(found) > form.limit else None
        responder.answer(JobsView(jobs=[job_view(job, offset) for job in found[: form.limit]], after=more))

    def services(self, form: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._refuse_while_loading()
        worker_registry = self.broker.worker_registry
        views = service_views(list(worker_registry.services.values()), list(worker_registry.workers.values()), now)
        responder.answer(ServicesView(services=views))

    def service(self, form: ServiceRef, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self._service_view(self._service(form.name), now))

    def pause(self, form: PauseRequest, payload: Payload, responder: Responder, now: float) -> None:
        most = self.broker.policy.max_service_bytes
        if not is_name(form.name, most):
            raise OperationError("invalid", f"a service name is 1 to {most} bytes of printable text")
        service = self.broker.pause(form.name, form.by)
        if service is None:
            raise OperationError(
                "busy", f"{len(self.broker.worker_registry.services)} services are known already (max_services)"
            )
        self._store_access.note(f"pause/{form.name}", form.by)
        self._answer_when_saved(responder, lambda: self._service_view(service, now))

    def resume(self, form: ServiceRef, payload: Payload, responder: Responder, now: float) -> None:
        service = self._service(form.name)
        self.broker.resume(form.name, now)
        self._store_access.note(f"pause/{form.name}", None)
        self._answer_when_saved(responder, lambda: self._service_view(service, now))

    def purge(self, form: PurgeRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._refuse_while_loading()
        self._service(form.name)
        self._purges.append((Purge(self.broker, form), responder))
        self._store_access.when_saved(lambda problem: None)  # requests an iteration of the runner

    def workers(self, form: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(
            WorkersView(workers=[worker_view(each, now) for each in self.broker.worker_registry.workers.values()])
        )

    def worker(self, form: WorkerRef, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self._worker_view(form.id, now))

    def drain(self, form: DrainRequest, payload: Payload, responder: Responder, now: float) -> None:
        self._worker_view(form.id, now)
        worker = self.broker.worker_registry.workers[WorkerId(form.id)]
        self.broker.drain(worker, now, at_once=form.now, stays=worker.profile.comes_back)
        self._answer_when_saved(responder, lambda: worker_view(worker, now))

    def schedules(self, form: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(SchedulesView(schedules=self.scheduler.list()))

    def set_schedule(self, form: ScheduleRequest, payload: Payload, responder: Responder, now: float) -> None:
        if payload:
            form = replace(form, payload=None, payload_base64=b64encode(payload_of(form, payload)).decode())
        view = self.scheduler.put(form, now, now + self._offset())
        self._answer_when_saved(responder, lambda: view)

    def schedule(self, form: ScheduleRef, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self.scheduler.get(form.name))

    def delete_schedule(self, form: ScheduleRef, payload: Payload, responder: Responder, now: float) -> None:
        view = self.scheduler.get(form.name)
        self.scheduler.remove(form.name)
        self._answer_when_saved(responder, lambda: view)

    def pause_schedule(self, form: ScheduleRef, payload: Payload, responder: Responder, now: float) -> None:
        view = self.scheduler.pause(form.name, now, now + self._offset())
        self._answer_when_saved(responder, lambda: view)

    def resume_schedule(self, form: ScheduleRef, payload: Payload, responder: Responder, now: float) -> None:
        view = self.scheduler.resume(form.name, now, now + self._offset())
        self._answer_when_saved(responder, lambda: view)

    def health(self, form: EmptyRequest, payload: Payload, responder: Responder, now: float) -> None:
        responder.answer(self._show_health())

    # ---------------------------------------------------------------- effects and time

    def execute(self, effect: Effect, now: float) -> None:
        self._next_look = -inf
        if isinstance(effect, Acknowledge):
            pending = effect.caller
            assert isinstance(pending, PendingRequest)
            if pending.due == inf:  # else it waits for the outcome
                self._done_with(pending, now).answer(job_view(effect.job, self._offset()))
        elif isinstance(effect, DeliverOutcome):
            pending = effect.caller
            assert isinstance(pending, PendingRequest)
            job = effect.job
            if job is None or effect.refusal is not None:
                kind = ERROR_KINDS.get(effect.refusal, "busy") if effect.refusal is not None else "busy"
                self._done_with(pending, now).refuse(ErrorView(kind=kind, detail=effect.reason))  # type: ignore[arg-type]
            elif job.outcome is not effect.outcome:  # the job ended otherwise, but that outcome could not be delivered
                self._done_with(pending, now).refuse(ErrorView(kind="internal", detail=effect.reason))
            else:
                view = job_view(job, self._offset())
                self._done_with(pending, now).answer(view, effect.result, effect.failure)
        # Progress is not delivered here: the job keeps the last report.

    def leave(self, pending: PendingRequest, now: float) -> None:
        """Abandon a pending request: its client has disconnected."""
        self._next_look = -inf
        if pending.responder is not None:
            self._done_with(pending, now)

    def close(self, now: float) -> None:
        """The broker stops: answer every request that waits for an outcome with the state of its job."""
        self._end_waits(inf, now)

    def tick(self, now: float) -> float:
        if now < self._next_look:  # nearly always: every iteration calls this
            return self._next_look
        self._end_waits(now, now)
        self._go_on_purging(now)
        due = self.scheduler.tick(now, now + self._offset()) if not self.is_loading else now + UNTIL_LOADED
        self._next_look = now if self._purges else min(due, self._waiting.next())
        return self._next_look

    # ---------------------------------------------------------------- helpers

    def _refuse_while_loading(self) -> None:
        """Refuse a list while jobs are loaded: an incomplete one would look as if jobs were lost."""
        if self.is_loading:
            raise OperationError("loading", STILL_READ)

    def _find(self, name: str) -> Job:
        job = self.broker.jobs.get(JobId(bytes.fromhex(name)))
        if job is not None:
            return job
        if self.is_loading:
            raise OperationError("loading", STILL_READ)
        raise OperationError("not found", "there is no such job: it never was, or its outcome has been erased")

    def _retried(self, job: Job) -> Job | None:
        """The job that an earlier retry made of this one, or None. Raises OperationError if that job was not done."""
        if job.retried_as is None:
            return None
        again = self.broker.jobs.get(job.retried_as)
        if again is not None and (again.state is not ENDED or again.outcome is DONE):
            return again
        name = job.retried_as.hex()
        if again is None:
            raise OperationError("conflict", f"it was retried already, as job {name}, whose outcome has been erased")
        advice = ": retry that one" if again.quarantined else ""
        raise OperationError("conflict", f"it was retried already, as job {name}, which ended {again.outcome}{advice}")

    def _job_view(self, job: Job) -> JobView:
        return job_view(job, self._offset())

    def _matching(self, form: ListJobsRequest) -> Iterator[Job]:
        newest_first = iter(reversed(self.broker.jobs.values()))
        if form.after is not None:
            last = bytes.fromhex(form.after)
            if last not in self.broker.jobs:
                gone = f"the list cannot go on after job {form.after}, which has been erased: start it again"
                raise OperationError("loading", STILL_READ) if self.is_loading else OperationError("not found", gone)
            for job in newest_first:
                if job.id == last:
                    break
        for job in newest_first:
            if (
                (form.service is None or job.service.name == form.service)
                and (form.state is None or job.state == form.state)
                and (form.outcome is None or job.outcome == form.outcome)
                and (form.quarantined is None or job.quarantined == form.quarantined)
            ):
                yield job

    def _service(self, name: str) -> Service:
        service = self.broker.worker_registry.services.get(name)
        if service is None:
            raise OperationError(
                "not found", "there is no such service: no worker has offered it, and no job is there for it"
            )
        return service

    def _service_view(self, service: Service, now: float) -> ServiceView:
        return service_views([service], list(self.broker.worker_registry.workers.values()), now)[0]

    def _worker_view(self, id: int, now: float) -> WorkerView:
        worker = self.broker.worker_registry.workers.get(WorkerId(id))
        if worker is None:
            raise OperationError("not found", "there is no such worker: it has gone, or never was")
        return worker_view(worker, now)

    def _submit_recurring(self, form: ScheduleRequest, payload: bytes, key: str, now: float) -> JobId | None:
        if self.store.problem is not None:
            return None
        job_options = job_options_for(
            0.0, form.priority, form.attempts, form.timeout, form.retry_first, form.retry_cap, form.retry_jitter
        )
        run = ScheduledRun(self.scheduler, form.name)
        job = self.broker.submit(form.service, payload, PendingRequest(self, run, inf), job_options, now, key=key)
        run.job = job.id if job is not None else None
        return run.job

    def _is_over(self, id: JobId) -> bool:
        job = self.broker.jobs.get(id)
        return job is None or job.state is ENDED

    def _answer_when_saved(self, responder: Responder, view: Callable[[], View]) -> None:
        def saved(problem: str | None) -> None:
            if problem is None:
                responder.answer(view())
            else:
                responder.refuse(ErrorView(kind="store unavailable", detail=problem))

        self._store_access.when_saved(saved)

    def _done_with(self, pending: PendingRequest, now: float) -> Responder:
        responder, pending.responder = pending.responder, None
        self._waiting.disarm(pending)
        self.broker.caller_gone(pending, now)
        return responder if responder is not None else NULL_RESPONDER

    def _end_waits(self, due: float, now: float) -> None:
        """Answer the requests whose wait is over by then."""
        for pending in self._waiting.due(due):
            job = pending.job
            assert job is not None
            if job.state is not ENDED:  # else it receives the outcome once that is committed
                self._done_with(pending, now).answer(job_view(job, self._offset()))

    def _go_on_purging(self, now: float) -> None:
        for purge, responder in list(self._purges):
            view = purge.go_on(now)
            if view is not None:
                self._purges.remove((purge, responder))
                self._answer_when_saved(responder, partial(_same, view))


def _same(view: View) -> View:
    return view


# The error kind for each refusal of the core.
ERROR_KINDS: Final = {
    RefusalReason.NO_SUCH_SERVICE: "no such service",
    RefusalReason.BUSY: "busy",
    RefusalReason.DRAINING: "draining",
    RefusalReason.KEY_REUSED: "key reused",
    RefusalReason.STORE_UNAVAILABLE: "store unavailable",
    RefusalReason.INVALID: "invalid",
}

# The function of each operation: the method of its name.
FUNCTIONS: Final[dict[str, Callable[..., PendingRequest | None]]] = {
    name: getattr(OperationHandlers, row.python_name) for name, row in OPERATIONS.items()
}
