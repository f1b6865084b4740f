"""Sends events to HTTP clients: those of this broker and, in a cluster, those of the others.

While no event stream is open, it subscribes to nothing.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle, get_running_loop
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.broker import Broker
from dragoman.core.events import (
    JOB_ENDED,
    JOB_KINDS,
    KIND_NAMES,
    Event,
    JobEvent,
    Subscription,
    WorkerEvent,
)
from dragoman.core.model import Job, JobId
from dragoman.core.owners import Owner
from dragoman.core.rights import LOCAL, Principal
from dragoman.http.event_filters import ALL_KINDS, EventFilter
from dragoman.http.event_views import SkippedView, encode, job_event_view, seen_event, state_of, worker_event_view
from dragoman.http.followed_job import FollowedJob
from dragoman.http.sse import EventStream, Streams
from dragoman.operations.event_sources import EventSources
from dragoman.operations.seen_links import reason_of
from dragoman.operations.visibility import sees_job_event, services_in_event

REPORT_INTERVAL: Final = 1.0  # seconds between two `skipped` events
ROOM_KEPT: Final = 128  # events of this broker that a stream may still queue, when those of others are skipped


class Subscribers:
    """The event streams of one HTTP listener: a subscriber while at least one is open."""

    def __init__(self, broker: Broker, *, shows_progress: bool = True) -> None:
        """Without `shows_progress`, events of progress have no content."""
        self._core = broker
        self._events = broker.events
        self._shows_progress = shows_progress
        self._subscription: Subscription | None = None
        # Each stream with the principal whose rights filter its events; None: all events, without a check.
        self._to_all: dict[EventStream, Principal | None] = {}
        self._filtered: dict[EventStream, EventFilter] = {}  # of the same streams, those with a filter
        self._loop: AbstractEventLoop | None = None  # set by the first stream with a filter
        self._reports: dict[EventStream, TimerHandle] = {}  # timers of `skipped` events
        self._to_job: dict[JobId, dict[EventStream, Principal | None]] = {}
        self._followed: dict[JobId, dict[FollowedJob, None]] = {}  # in a cluster, in place of `_to_job`
        self._broker: str | None = None  # name of this broker, in a cluster

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
                stream.publish(job.state.value, encode(state_of(job, reason_of(job, principal, self._core))))
            if job.is_told:
                stream.end()
        self._subscribe()
        return stream

    def open_filtered(
        self, streams: Streams, principal: Principal, chosen: EventFilter, sources: EventSources | None = None
    ) -> EventStream:
        """Open a stream of the events that a filter chooses. `sources`: the other brokers, in a cluster."""
        watch: object | None = None

        def ended() -> None:
            if sources is not None and watch is not None:
                sources.leave(watch)
            self._leave(stream, None)

        stream = EventStream(streams, ended)
        self._to_all[stream] = principal if principal.name != LOCAL else None
        self._filtered[stream] = chosen
        self._loop = get_running_loop()
        self._subscribe()
        if sources is not None:
            self._broker = sources.name
            receive = partial(self._receive_from_other, stream, chosen)
            watch = sources.watch(msgspec.json.encode(chosen.query), principal.name, receive)
        return stream

    def follow(self, streams: Streams, owner: Owner, id: JobId, sources: EventSources) -> EventStream:
        """Open a stream of the events of a job of any broker, beginning with its present state. The owner's principal
        must be allowed to see the job."""

        def ended() -> None:
            if job.watch is not None:
                sources.leave(job.watch)
            jobs = self._followed.get(id, {})
            jobs.pop(job, None)
            if not jobs:
                self._followed.pop(id, None)
            self._subscribe()

        stream = EventStream(streams, ended)
        viewer = owner.principal if owner.principal.name != LOCAL else None
        job = FollowedJob(stream, viewer, self._core, shows_progress=self._shows_progress)
        self._broker = sources.name
        self._followed.setdefault(id, {})[job] = None
        self._subscribe()
        job.watch = sources.follow(id, owner, job.receive, job.show)
        return stream

    def judge(self, kind: int, job: Job) -> bool:
        """Decide whether an event of a job is made: every filter is asked, because each counts what it skips."""
        is_wanted = len(self._filtered) < len(self._to_all) or job.id in self._to_job or job.id in self._followed
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
            takers = [(stream, viewer) for stream, viewer in concerned if self._takes(stream, viewer, event)]
            for each in list(self._followed.get(event.id, ())):
                each.receive(self._broker or "", [event], 0)
            if takers:
                view = job_event_view(event, self._shows_progress, self._broker)
                data = encode(view)
                for stream, viewer in takers:
                    seen = seen_event(view, event, viewer, self._core)
                    stream.publish(name, data if seen is view else encode(seen))
            if event.kind == JOB_ENDED:
                for stream in own:
                    stream.end()
        elif isinstance(event, WorkerEvent) and self._to_all:
            worker = worker_event_view(event, self._broker)
            data = encode(worker)
            for stream, viewer in self._to_all.items():
                chosen = self._filtered.get(stream)
                if chosen is not None and not chosen.takes_worker(event):
                    self._plan_report(stream, chosen)
                elif viewer is None:
                    stream.publish(name, data)
                elif (services := services_in_event(viewer, event)) is not None:
                    stream.publish(name, encode(replace(worker, services=services)))

    def _receive_from_other(
        self,
        stream: EventStream,
        chosen: EventFilter,
        broker: str,
        events: list[JobEvent | WorkerEvent],
        skipped: int,
    ) -> None:
        """Write events of another broker to one stream. If they come too fast for its reader, they are skipped, and its
        stream stays open."""
        chosen.skipped += skipped
        viewer = self._to_all.get(stream)
        for event in events:
            services = None
            if isinstance(event, WorkerEvent) and viewer is not None:
                services = services_in_event(viewer, event)
                if services is None:
                    continue
            if stream.room <= ROOM_KEPT:
                chosen.skipped += 1
            elif not chosen.admits(event):
                continue
            elif isinstance(event, JobEvent):
                view = seen_event(job_event_view(event, self._shows_progress, broker), event, viewer, self._core)
                stream.publish(KIND_NAMES[event.kind], encode(view))
            else:
                worker = worker_event_view(event, broker)
                stream.publish(KIND_NAMES[event.kind], encode(replace(worker, services=services or worker.services)))
        self._plan_report(stream, chosen)

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
        stream.publish("skipped", encode(SkippedView(count=chosen.take_skipped())))

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
        kinds = JOB_KINDS if self._to_job or self._followed else 0
        for stream in self._to_all:
            kinds |= self._filtered[stream].kinds if stream in self._filtered else ALL_KINDS
        former = self._subscription
        if kinds != (former.kinds if former is not None else 0):
            if former is not None:
                self._events.unsubscribe(former)
            self._subscription = self._events.subscribe(kinds, self.receive, self.judge) if kinds else None
