"""Sends the broker's events to HTTP clients. While no event stream is open, it subscribes to nothing."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle, get_running_loop
from base64 import b64encode
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dragoman.core.events import (
    JOB_ENDED,
    JOB_KINDS,
    JOB_PROGRESS,
    KIND_NAMES,
    Event,
    Events,
    JobEvent,
    Subscription,
    WorkerEvent,
)
from dragoman.core.model import Job, JobId
from dragoman.core.rights import LOCAL, Principal
from dragoman.http.event_filters import ALL_KINDS, EventFilter
from dragoman.http.sse import EventStream, Streams
from dragoman.operations.schemas import JobIdText, OutcomeName, State, View
from dragoman.operations.visibility import sees_job_event, services_in_event

REPORT_INTERVAL: Final = 1.0  # seconds between two `skipped` events


class EndedAttemptView(View, omit_defaults=True):
    """The attempt after which a job is delayed, or waits again. `seconds`: its duration."""

    number: int
    worker: str
    outcome: OutcomeName
    seconds: float
    reason: str = ""


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
    dialect: str | None = None
    max_attempts: int | None = None
    last: EndedAttemptView | None = None
    delay: float | None = None
    progress: str | None = None
    progress_base64: str | None = None


class WorkerEventView(View):
    """The data of a worker's event."""

    id: int
    name: str
    dialect: str
    services: list[str]


class SkippedView(View):
    """The number of events that a stream did not get, because there were more than its `max_rate` allows."""

    count: int


class Subscribers:
    """The event streams of one HTTP listener: a subscriber while at least one is open."""

    def __init__(self, events: Events, *, shows_progress: bool = True) -> None:
        """Without `shows_progress`, events of progress have no content."""
        self._events = events
        self._shows_progress = shows_progress
        self._subscription: Subscription | None = None
        # Each stream with the principal whose rights filter its events; None: all events, without a check.
        self._to_all: dict[EventStream, Principal | None] = {}
        self._filtered: dict[EventStream, EventFilter] = {}  # of the same streams, those with a filter
        self._loop: AbstractEventLoop | None = None  # set by the first stream with a filter
        self._reports: dict[EventStream, TimerHandle] = {}  # timers of `skipped` events
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

    def open_filtered(self, streams: Streams, principal: Principal, chosen: EventFilter) -> EventStream:
        """Open a stream of the events that a filter chooses."""
        stream = EventStream(streams, lambda: self._leave(stream, None))
        self._to_all[stream] = principal if principal.name != LOCAL else None
        self._filtered[stream] = chosen
        self._loop = get_running_loop()
        self._subscribe()
        return stream

    def judge(self, kind: int, job: Job) -> bool:
        """Decide whether an event of a job is made: every filter is asked, because each counts what it skips."""
        is_wanted = len(self._filtered) < len(self._to_all) or job.id in self._to_job
        for stream, chosen in self._filtered.items():
            is_wanted |= chosen.judge(kind, job)
            self._plan_report(stream, chosen)
        return is_wanted

    def receive(self, event: Event, now: float) -> None:
        """Write an event to the streams that it concerns."""
        name = KIND_NAMES[event.kind]
        if isinstance(event, JobEvent):
            own = self._to_job.get(event.id, {})
            concerned = (*self._to_all.items(), *own.items())
            takers = [stream for stream, viewer in concerned if self._takes(stream, viewer, event)]
            if takers:
                data = _encode(_job_view(event, self._shows_progress))
                for stream in takers:
                    stream.publish(name, data)
            if event.kind == JOB_ENDED:
                for stream in own:
                    stream.end()
        elif isinstance(event, WorkerEvent) and self._to_all:
            view = WorkerEventView(id=event.id, name=event.name, dialect=event.dialect, services=list(event.services))
            data = _encode(view)
            for stream, viewer in self._to_all.items():
                chosen = self._filtered.get(stream)
                if chosen is not None and not chosen.takes_worker(event):
                    self._plan_report(stream, chosen)
                elif viewer is None:
                    stream.publish(name, data)
                elif (services := services_in_event(viewer, event)) is not None:
                    stream.publish(name, _encode(replace(view, services=services)))

    def _takes(self, stream: EventStream, viewer: Principal | None, event: JobEvent) -> bool:
        chosen = self._filtered.get(stream)
        if chosen is not None:
            return chosen.takes(event)
        return viewer is None or sees_job_event(viewer, event)

    def _plan_report(self, stream: EventStream, chosen: EventFilter) -> None:
        """Send the number of skipped events within a second, once a second."""
        if chosen.skipped and stream not in self._reports:
            assert self._loop is not None
            self._reports[stream] = self._loop.call_later(REPORT_INTERVAL, self._report, stream, chosen)

    def _report(self, stream: EventStream, chosen: EventFilter) -> None:
        del self._reports[stream]
        stream.publish("skipped", _encode(SkippedView(count=chosen.take_skipped())))

    def _leave(self, stream: EventStream, job: Job | None) -> None:
        if job is None:
            self._to_all.pop(stream, None)
            self._filtered.pop(stream, None)
            report = self._reports.pop(stream, None)
            if report is not None:
                report.cancel()
        else:
            others = self._to_job.get(job.id, {})
            others.pop(stream, None)
            if not others:
                self._to_job.pop(job.id, None)
        self._subscribe()

    def _subscribe(self) -> None:
        """Subscribe to the kinds that the open streams need, and to no others."""
        kinds = JOB_KINDS if self._to_job else 0
        for stream in self._to_all:
            kinds |= self._filtered[stream].kinds if stream in self._filtered else ALL_KINDS
        former = self._subscription
        if kinds != (former.kinds if former is not None else 0):
            if former is not None:
                self._events.unsubscribe(former)
            self._subscription = self._events.subscribe(kinds, self.receive, self.judge) if kinds else None


def _job_view(event: JobEvent, shows_progress: bool) -> JobEventView:
    state: Any = "running" if event.kind == JOB_PROGRESS else event.state or KIND_NAMES[event.kind]
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
        dialect=event.dialect,
        max_attempts=event.max_attempts,
        delay=round(event.delay, 3) if event.delay is not None else None,
    )
    if (last := event.last) is not None:
        view.last = EndedAttemptView(
            number=last.number,
            worker=last.worker,
            outcome=last.outcome.value,
            seconds=round(last.seconds, 6),
            reason=last.reason if event.is_kept else "",
        )
    if event.kind == JOB_PROGRESS and shows_progress:
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
