"""Filters of event streams: service, worker, state and rate. They decide before an event is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Final, Literal

from msgspec import Meta

from dragoman.core.events import (
    JOB_DELAYED,
    JOB_DEPENDENT,
    JOB_ENDED,
    JOB_KINDS,
    JOB_PROGRESS,
    JOB_RUNNING,
    JOB_WAITING,
    RESULT_LATE,
    WORKER_JOINED,
    WORKER_LEFT,
    JobEvent,
    WorkerEvent,
)
from dragoman.core.model import Job, JobId, Worker
from dragoman.core.rights import Principal
from dragoman.core.states import DONE
from dragoman.operations.schemas import OperationRequest, ServiceName
from dragoman.operations.service_views import CLUSTER
from dragoman.operations.visibility import sees_event_of, sees_job_event

EventState = Literal[
    "dependent",
    "waiting",
    "delayed",
    "running",
    "late",
    "ended",
    "done",
    "undone",
    "failed",
    "timed out",
    "lost",
    "cancelled",
    "refused",
]
ALL_KINDS: Final = JOB_KINDS | RESULT_LATE | WORKER_JOINED | WORKER_LEFT
KINDS: Final[dict[str, int]] = {
    "dependent": JOB_DEPENDENT,
    "waiting": JOB_WAITING,
    "delayed": JOB_DELAYED,
    "running": JOB_RUNNING | JOB_PROGRESS,
    "late": RESULT_LATE,
}  # of all other states: the end of a job
BURST: Final = 0.1  # seconds: a stream may get the events of this time at once


class EventsQuery(OperationRequest):
    """Filters of a stream of all events."""

    service: Annotated[
        ServiceName | None, Meta(description="Only jobs of this service, and workers that offer it.")
    ] = None
    worker: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        Meta(description="Only the worker of this name or number, and jobs while they are there."),
    ] = None
    state: Annotated[
        EventState | None,
        Meta(
            description="Only jobs that enter this state or end in this outcome; `undone`: any outcome but done; "
            "`late`: only results that are dropped because they came late."
        ),
    ] = None
    max_rate: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Meta(description="Maximum number of events per second. If more occur, an event `skipped` counts the others."),
    ] = None


class EventFilter:
    """Decides which events one stream gets. An event of a job is judged once, before it is made; `takes` then returns
    that decision.

    A job that runs here for another broker of the cluster is a job of that one, whose events tell of it. Only a query
    for a worker gets the events here, because they alone name the worker.
    """

    def __init__(
        self,
        query: EventsQuery,
        viewer: Principal | None,
        workers: Iterable[Worker],
        clock: Callable[[], float],
        job: JobId | None = None,
    ) -> None:
        """`viewer`: the principal whose rights filter the events; None: all events. `workers`: all that are present.
        `job`: only events of this job, whose end is never skipped."""
        self.query = query
        self._viewer = viewer
        self._job = job
        self._clock = clock
        self._kinds = KINDS.get(query.state, JOB_ENDED) if query.state is not None else ALL_KINDS
        self._outcome = query.state if self._kinds == JOB_ENDED and query.state != "ended" else None
        # Jobs on the worker that the query names: a job's later events name no worker.
        self._jobs: dict[JobId, None] = {
            attempt.job.id: None
            for worker in workers
            if query.worker in (worker.name, str(worker.id))
            for attempt in worker.running.values()
        }
        self._taken: dict[tuple[int, JobId], int] = {}  # events that will come and are for this stream
        self._allowance = 1.0
        self._filled_at = clock()
        self.skipped = 0  # events that exceeded the rate since the last report

    @property
    def kinds(self) -> int:
        """Kinds of events that must be published for this stream."""
        return self._kinds | (JOB_RUNNING if self.query.worker is not None else 0)

    def judge(self, kind: int, job: Job) -> bool:
        """Decide about an event of a job that is about to be made."""
        if not self._matches(kind, job):
            return False
        is_end = self._job is not None and kind == JOB_ENDED
        if not is_end and not self._is_within_rate():
            return False
        key = kind, job.id
        self._taken[key] = self._taken.get(key, 0) + 1
        return True

    def takes(self, event: JobEvent) -> bool:
        """True if `judge` has accepted this event."""
        key = event.kind, event.id
        left = self._taken.pop(key, 0) - 1
        if left > 0:
            self._taken[key] = left
        return left >= 0

    def takes_worker(self, event: WorkerEvent) -> bool:
        query = self.query
        return (
            bool(event.kind & self._kinds)
            and (query.service is None or query.service in event.services)
            and (query.worker is None or query.worker in (event.name, str(event.id)))
            and event.dialect != CLUSTER  # another broker, as this one sees it; that one has events of its workers
            and self._is_within_rate()
        )

    def admits(self, event: JobEvent | WorkerEvent) -> bool:
        """Decide about an event of another broker, which has applied the query: its rights, and the rate."""
        if isinstance(event, JobEvent) and self._viewer is not None and not sees_job_event(self._viewer, event):
            return False
        return self._is_within_rate()

    def take_skipped(self) -> int:
        """Return the number of skipped events, and count anew."""
        skipped, self.skipped = self.skipped, 0
        return skipped

    # ---------------------------------------------------------------- helpers

    def _matches(self, kind: int, job: Job) -> bool:
        query = self.query
        if self._job is not None and job.id != self._job:
            return False
        if job.caller_dialect == CLUSTER and query.worker is None:
            return False
        if query.service is not None and job.service.name != query.service:
            return False
        if query.worker is not None and not self._is_there(kind, job, query.worker):
            return False
        if not kind & self._kinds:
            return False
        if self._outcome is not None:
            is_wanted = job.outcome is not DONE if self._outcome == "undone" else job.outcome == self._outcome
            if not is_wanted:
                return False
        return self._viewer is None or sees_event_of(self._viewer, kind, job)

    def _is_there(self, kind: int, job: Job, worker: str) -> bool:
        """True if the job is on the worker, or has just left it; of a late result, if an attempt was there."""
        attempt = job.attempt
        if kind == RESULT_LATE:
            return any(worker in (each.worker, str(each.worker_id)) for each in job.history or ())
        if kind & (JOB_RUNNING | JOB_PROGRESS):
            is_there = attempt is not None and worker in (attempt.worker.name, str(attempt.worker.id))
            if is_there:
                self._jobs[job.id] = None
            return is_there
        if job.id not in self._jobs:
            return False
        del self._jobs[job.id]
        return True

    def _is_within_rate(self) -> bool:
        rate = self.query.max_rate
        if rate is None:
            return True
        now = self._clock()
        self._allowance = min(max(1.0, rate * BURST), self._allowance + (now - self._filled_at) * rate)
        self._filled_at = now
        if self._allowance < 1.0:
            self.skipped += 1
            return False
        self._allowance -= 1.0
        return True
