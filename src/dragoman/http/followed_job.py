"""The event stream of one job in a cluster: the job's shard may move from broker to broker meanwhile."""

from __future__ import annotations

from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.events import JOB_ENDED, JOB_PROGRESS, KIND_NAMES, JobEvent, WorkerEvent
from dragoman.core.rights import Principal
from dragoman.http.event_views import SkippedView, encode, job_event_view, seen_event, state_in
from dragoman.http.sse import EventStream
from dragoman.operations.schemas import JobView
from dragoman.operations.service_views import CLUSTER
from dragoman.operations.visibility import sees_job_event

ROOM_KEPT: Final = 8  # events of states that a stream may still queue, when progress is left out


class FollowedJob:
    """Writes the stream: the job's state, its events, and its end. If the job has moved to another broker, or if events
    were lost, the stream has its state once more."""

    def __init__(self, stream: EventStream, viewer: Principal | None, broker: Broker, *, shows_progress: bool) -> None:
        """`viewer`: the principal whose rights filter the events; None: all events."""
        self._stream = stream
        self._viewer = viewer
        self._core = broker
        self._shows_progress = shows_progress
        self._last: tuple[str, str, int | None] | None = None  # broker, state and attempt that were written last
        self._skipped = 0  # reports of progress that were left out, and not counted in the stream yet
        self.watch: object | None = None  # of the other brokers

    def show(self, view: JobView | None) -> None:
        """Write the state of the job, unless the stream has it. Without a view, the job is not known any more."""
        if view is None:
            self._stream.end()
            return
        self._count_skipped()
        state = state_in(view)
        if view.state == "ended" or self._last != (state.broker, state.state, state.attempt):
            self._last = state.broker or "", state.state, state.attempt
            self._stream.publish(state.state, encode(state))
        if view.state == "ended":
            self._stream.end()

    def receive(self, broker: str, events: list[JobEvent | WorkerEvent], skipped: int) -> None:
        """Write events of a broker. Those that precede the first state are part of it."""
        self._skipped += skipped
        for event in events:
            if isinstance(event, JobEvent) and self._last is not None and event.caller != CLUSTER:
                self._write(broker, event)

    def _write(self, broker: str, event: JobEvent) -> None:
        is_progress = event.kind == JOB_PROGRESS
        view = job_event_view(event, self._shows_progress, broker)
        if not is_progress:
            self._last = broker, view.state, event.attempt
            self._count_skipped()
        is_seen = self._viewer is None or sees_job_event(self._viewer, event)
        if is_seen and is_progress and self._stream.room < ROOM_KEPT:
            self._skipped += 1
        elif is_seen:
            self._stream.publish(KIND_NAMES[event.kind], encode(seen_event(view, event, self._viewer, self._core)))
        if event.kind == JOB_ENDED:
            self._stream.end()

    def _count_skipped(self) -> None:
        """Write the number of reports that were left out: with the next state, not with each."""
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            self._stream.publish("skipped", encode(SkippedView(count=skipped)))
