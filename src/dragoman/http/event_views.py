"""Data of events on event streams: JSON of jobs, of workers, and of the number of skipped events."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.core.broker import Broker
from dragoman.core.events import JOB_PROGRESS, KIND_NAMES, JobEvent, WorkerEvent
from dragoman.core.model import Job
from dragoman.core.rights import Principal
from dragoman.operations.schemas import JobIdText, JobView, OutcomeName, State, View
from dragoman.operations.seen_links import seen_reason


class EndedAttemptView(View, omit_defaults=True):
    """The attempt after which a job is delayed, or waits again. `seconds`: its duration."""

    number: int
    worker: str
    outcome: OutcomeName
    seconds: float
    reason: str = ""


class JobEventView(View, omit_defaults=True):
    """The data of a job's event. `progress` where its bytes are UTF-8, else `progress_base64`. `broker`: in a cluster,
    the one that owns the job."""

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
    broker: str | None = None


class WorkerEventView(View, omit_defaults=True):
    """The data of a worker's event. `broker`: in a cluster, the one to which the worker is connected."""

    id: int
    name: str
    dialect: str
    services: list[str]
    broker: str | None = None


class SkippedView(View):
    """The number of events that a stream did not get, because there were more than its `max_rate` allows."""

    count: int


def job_event_view(event: JobEvent, shows_progress: bool, broker: str | None = None) -> JobEventView:
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
        broker=broker,
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


def seen_event(view: JobEventView, event: JobEvent, viewer: Principal | None, broker: Broker) -> JobEventView:
    """Return the view of an event as a principal may see it. None: all of it."""
    if viewer is None or not view.reason:
        return view
    reason = seen_reason(view.reason, event.owner, viewer, broker)
    return view if reason == view.reason else replace(view, reason=reason)


def worker_event_view(event: WorkerEvent, broker: str | None = None) -> WorkerEventView:
    services = list(event.services)
    return WorkerEventView(id=event.id, name=event.name, dialect=event.dialect, services=services, broker=broker)


def state_of(job: Job, reason: str) -> JobEventView:
    """The state of a job now, in the form of an event. `reason`: as its reader may see it."""
    attempt = job.attempt
    return JobEventView(
        id=job.id.hex(),
        service=job.service.name,
        state=job.state.value,
        outcome=job.outcome.value if job.outcome is not None else None,
        reason=reason,
        background=job.options.durable,
        quarantined=job.quarantined,
        attempt=attempt.number if attempt is not None else None,
        worker=attempt.worker.name if attempt is not None else None,
    )


def state_in(view: JobView) -> JobEventView:
    """The state of a job of any broker of the cluster, in the form of an event."""
    attempt = view.attempts[-1] if view.state == "running" and view.attempts else None
    return JobEventView(
        id=view.id,
        service=view.service,
        state=view.state,
        outcome=view.outcome,
        reason=view.reason,
        background=view.background,
        quarantined=view.quarantined,
        attempt=attempt.number if attempt is not None else None,
        worker=attempt.worker if attempt is not None else None,
        broker=view.broker or None,
    )


def encode(view: View) -> bytes:
    return msgspec.json.encode(view)
