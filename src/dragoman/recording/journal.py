"""The journal of a recording: jobs, workers and services whose state changes, as the core publishes it."""

from __future__ import annotations

from typing import Any, Final

from dragoman.core.events import (
    JOB_DELAYED,
    JOB_DEPENDENT,
    JOB_ENDED,
    JOB_RUNNING,
    JOB_WAITING,
    KIND_NAMES,
    SERVICE_PAUSED,
    SERVICE_RESUMED,
    WORKER_DRAINING,
    WORKER_JOINED,
    WORKER_LEFT,
    Event,
    JobEvent,
    ServiceEvent,
    WorkerEvent,
)

KINDS: Final = (
    JOB_DEPENDENT
    | JOB_DELAYED
    | JOB_WAITING
    | JOB_RUNNING
    | JOB_ENDED
    | WORKER_JOINED
    | WORKER_DRAINING
    | WORKER_LEFT
    | SERVICE_PAUSED
    | SERVICE_RESUMED
)


def entry_of(event: Event) -> tuple[Any, ...]:
    """Return the entry of an event: its kind and facts that do not depend on payloads."""
    kind = KIND_NAMES[event.kind]
    if isinstance(event, JobEvent):
        return kind, "job", bytes(event.id), event.service, event.attempt, event.worker_id, event.outcome
    if isinstance(event, WorkerEvent):
        return kind, "worker", event.id, event.dialect, event.held
    assert isinstance(event, ServiceEvent)
    return kind, "service", event.name


def entry_text(entry: tuple[Any, ...]) -> str:
    """Return an entry as one line."""
    kind, subject, *facts = entry
    shown = [each.hex() if isinstance(each, bytes) else str(each) for each in facts if each is not None]
    return f"{subject} {kind}: {', '.join(shown)}"
