"""Sends the broker's events to HTTP clients. While no event stream is open, it subscribes to nothing."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.core.events import (
    JOB_ENDED,
    JOB_KINDS,
    JOB_PROGRESS,
    KIND_NAMES,
    WORKER_JOINED,
    WORKER_LEFT,
    Event,
    Events,
    JobEvent,
    Subscription,
    WorkerEvent,
)
from dragoman.core.model import Job, JobId
from dragoman.core.rights import LOCAL, Principal
from dragoman.http.sse import EventStream, Streams
from dragoman.operations.schemas import JobIdText, OutcomeName, State, View
from dragoman.operations.visibility import sees_job_event, services_in_event


class JobEventView(View, omit_defaults=True):
    """The data of a job's event. `progress` where its bytes are UTF-8, else `progress_base64`."""

    id: JobIdText
    service: str
    state: State
    outcome: OutcomeName | None = None
    reason: str = ""
    background: bool = False
    quarantined: bool = False
    attempt: int | None = None
    worker: str | None = None
    progress: str | None = None
    progress_base64: str | None = None


class WorkerEventView(View):
    """The data of a worker's event."""

    id: int
    name: str
    dialect: str
    services: list[str]


class Subscribers:
    """The event streams of one HTTP listener: a subscriber while at least one is open."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._subscription: Subscription | None = None
        # Each stream with the principal whose rights filter its events; None: all events, without a check.
        self._to_all: dict[EventStream, Principal | None] = {}
        self._to_job: dict[JobId, dict[EventStream, Principal | None]] = {}

    def open_stream(self, streams: Streams, principal: Principal, job: Job | None = None) -> EventStream:
        """Open a stream of the events of this job, beginning with its present state, or of all jobs and workers. The
        principal must be allowed to see the job; of all others it gets those that it may see when they occur (R148)."""
        stream = EventStream(streams, lambda: self._leave(stream, job))
        viewer = principal if principal.name != LOCAL else None
        if job is None:
            self._to_all[stream] = viewer
        else:
            self._to_job.setdefault(job.id, {})[stream] = viewer
            if job.outcome is None or job.is_told:  # else its end is published when the store has it (R103)
                stream.publish(job.state.value, _encode(_state_of(job)))
            if job.is_told:
                stream.end()
        self._subscribe()
        return stream

    def receive(self, event: Event, now: float) -> None:
        """Write an event to the streams that it concerns."""
        name = KIND_NAMES[event.kind]
        if isinstance(event, JobEvent):
            own = self._to_job.get(event.id, {})
            if not own and not self._to_all:
                return
            data = _encode(_job_view(event))
            for stream, viewer in (*self._to_all.items(), *own.items()):
                if viewer is None or sees_job_event(viewer, event):
                    stream.publish(name, data)
            if event.kind == JOB_ENDED:
                for stream in own:
                    stream.end()
        elif isinstance(event, WorkerEvent) and self._to_all:
            view = WorkerEventView(id=event.id, name=event.name, dialect=event.dialect, services=list(event.services))
            data = _encode(view)
            for stream, viewer in self._to_all.items():
                if viewer is None:
                    stream.publish(name, data)
                elif (services := services_in_event(viewer, event)) is not None:
                    stream.publish(name, _encode(replace(view, services=services)))

    def _leave(self, stream: EventStream, job: Job | None) -> None:
        if job is None:
            self._to_all.pop(stream, None)
        else:
            others = self._to_job.get(job.id, {})
            others.pop(stream, None)
            if not others:
                self._to_job.pop(job.id, None)
        self._subscribe()

    def _subscribe(self) -> None:
        """Subscribe to the kinds that the open streams need, and to no others."""
        kinds = JOB_KINDS if self._to_all or self._to_job else 0
        if self._to_all:
            kinds |= WORKER_JOINED | WORKER_LEFT
        former = self._subscription
        if kinds != (former.kinds if former is not None else 0):
            if former is not None:
                self._events.unsubscribe(former)
            self._subscription = self._events.subscribe(kinds, self.receive) if kinds else None


def _job_view(event: JobEvent) -> JobEventView:
    state: Any = "running" if event.kind == JOB_PROGRESS else KIND_NAMES[event.kind]
    view = JobEventView(
        id=event.id.hex(),
        service=event.service,
        state=state,
        outcome=event.outcome.value if event.outcome is not None else None,
        reason=event.reason if event.is_kept else "",
        background=event.is_background,
        quarantined=event.is_quarantined,
        attempt=event.attempt,
        worker=event.worker,
    )
    if event.kind == JOB_PROGRESS:
        try:
            view.progress = event.progress.decode()
        except UnicodeDecodeError:
            view.progress_base64 = b64encode(event.progress).decode()
    return view


def _state_of(job: Job) -> JobEventView:
    """The state of a job now, in the form of an event."""
    attempt = job.attempt
    return JobEventView(
        id=job.id.hex(),
        service=job.service.name,
        state=job.state.value,
        outcome=job.outcome.value if job.outcome is not None else None,
        reason=job.reason,
        background=job.options.durable,
        quarantined=job.quarantined,
        attempt=attempt.number if attempt is not None else None,
        worker=attempt.worker.name if attempt is not None else None,
    )


def _encode(view: View) -> bytes:
    return msgspec.json.encode(view)
