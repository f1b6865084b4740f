"""Changes: the latest 500 events that a reader of the dashboard wants to know of, folded.

Changes of the same kind and service within 2 seconds are one, with a count. No event of a single job is among them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from dragoman.core.events import (
    BROKER_DRAINING,
    SERVICE_PAUSED,
    SERVICE_RESUMED,
    WORKER_DRAINING,
    WORKER_JOINED,
    WORKER_LEFT,
    BrokerEvent,
    Event,
    ServiceEvent,
    WorkerEvent,
)
from dragoman.core.infinity import inf
from dragoman.dashboard.phrases import count_of, joined
from dragoman.operations.dashboard_schemas import Level
from dragoman.operations.service_views import CLUSTER

MOST: Final = 500
FOLD: Final = 2.0  # seconds
RETRY_FOLD: Final = 600.0  # seconds in which retries of quarantined jobs are one change
KINDS: Final = WORKER_JOINED | WORKER_DRAINING | WORKER_LEFT | SERVICE_PAUSED | SERVICE_RESUMED | BROKER_DRAINING
MOST_NAMES: Final = 1_000  # names of workers whose reconnects are counted
REJOIN_TIME: Final = 300.0  # seconds
MOST_REJOINS: Final = 6  # in that time

JOINED, LEFT, WORKERS_DRAINING = "workers joined", "workers left", "workers draining"
PAUSED, RESUMED, QUARANTINED = "service paused", "service resumed", "jobs quarantined"
RETRIED = "jobs retried"
STARTED, STOPPING = "broker started", "broker draining"
BROKER_JOINED, BROKER_LEFT = "broker joined", "broker left"  # of the cluster


@dataclass(slots=True)
class Change:
    """One change, or several that are folded. `services`: those it concerns; None: the broker."""

    at: float
    kind: str
    services: tuple[str, ...] | None
    count: int
    level: Level
    held: int = 0  # attempts that ran at these workers when they left
    detail: str = ""

    @property
    def service(self) -> str | None:
        return self.services[0] if self.services else None

    @property
    def text(self) -> str:
        """The change in one sentence."""
        return SENTENCES[self.kind](self)


class Changes:
    """The latest changes, newest last. A subscriber of the broker's events."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque(maxlen=MOST)
        self._started = -inf  # time at which the broker started
        self._left: dict[str, int] = {}  # names of workers, and how often they left without a later join
        self._rejoined: dict[str, deque[float]] = {}  # times at which a worker of this name joined again

    def add(
        self,
        kind: str,
        now: float,
        services: tuple[str, ...] | None = None,
        *,
        count: int = 1,
        level: Level = "info",
        held: int = 0,
        detail: str = "",
        fold: float = FOLD,
    ) -> None:
        """Add a change, or fold it into one of the last `fold` seconds."""
        if kind == STARTED:
            self._started = now
        for change in reversed(self._changes):
            if now - change.at > fold:
                break
            if change.kind == kind and change.services == services and change.detail == detail:
                change.count += count
                change.held += held
                if level != "info":
                    change.level = level
                return
        self._changes.append(Change(now, kind, services, count, level, held, detail))

    def receive(self, event: Event, now: float) -> None:
        if isinstance(event, WorkerEvent):
            if not event.is_restored and event.dialect != CLUSTER:  # other brokers have changes of their own
                self._worker_changed(event, now)
        elif isinstance(event, ServiceEvent):
            is_paused = event.kind == SERVICE_PAUSED
            detail = f" by {event.by}" if is_paused and event.by else ""
            at = now if event.at is None else event.at
            if at >= self._started:  # a pause of an earlier run is no change
                self.add(PAUSED if is_paused else RESUMED, at, (event.name,), detail=detail)
        elif isinstance(event, BrokerEvent):
            self.add(STOPPING, now, level="warning")

    def jobs_retried(self, service: str, jobs: int, now: float) -> None:
        """Note the progress of a retry of quarantined jobs: one change with a count that rises."""
        self.add(RETRIED, now, (service,), count=jobs, fold=RETRY_FOLD)

    def latest(self, most: int) -> Iterable[Change]:
        """Return the latest changes, newest first."""
        return [each for each, _ in zip(reversed(self._changes), range(most), strict=False)]

    def since(self, time: float) -> Iterable[Change]:
        """Return the changes since a time, oldest first."""
        return [each for each in self._changes if each.at >= time]

    def rejoining(self, now: float) -> dict[str, int]:
        """Return the names of workers that joined again more than five times within 5 minutes, with the number."""
        found = {}
        for name, times in list(self._rejoined.items()):
            while times and times[0] < now - REJOIN_TIME:
                times.popleft()
            if not times:
                del self._rejoined[name]
            elif len(times) >= MOST_REJOINS:
                found[name] = len(times)
        return found

    def _worker_changed(self, event: WorkerEvent, now: float) -> None:
        if event.kind == WORKER_JOINED:
            self.add(JOINED, now, event.services)
            if event.name in self._left:
                self._left[event.name] -= 1
                if not self._left[event.name]:
                    del self._left[event.name]
                self._rejoined.setdefault(event.name, deque(maxlen=100)).append(now)
        elif event.kind == WORKER_LEFT:
            level: Level = "warning" if event.held else "info"
            self.add(LEFT, now, event.services, level=level, held=event.held)
            if event.name:
                if event.name not in self._left and len(self._left) >= MOST_NAMES:
                    del self._left[next(iter(self._left))]
                self._left[event.name] = self._left.get(event.name, 0) + 1
        else:
            self.add(WORKERS_DRAINING, now, event.services)


def _workers(change: Change, verb: str) -> str:
    services = f" of {joined(change.services)}" if change.services else ""
    held = f"; {count_of(change.held, 'job')} ran there" if change.held else ""
    return f"{count_of(change.count, 'worker')}{services} {verb}{held}"


SENTENCES: Final[dict[str, Callable[[Change], str]]] = {
    JOINED: lambda change: _workers(change, "joined"),
    LEFT: lambda change: _workers(change, "left"),
    WORKERS_DRAINING: lambda change: _workers(change, "is draining" if change.count == 1 else "are draining"),
    PAUSED: lambda change: f"{joined(change.services)} was paused{change.detail}",
    RESUMED: lambda change: f"{joined(change.services)} was resumed",
    QUARANTINED: lambda change: f"{count_of(change.count, 'job')} of {joined(change.services)} went into quarantine",
    RETRIED: lambda change: f"{count_of(change.count, 'job')} of {joined(change.services)} retried from quarantine",
    STARTED: lambda change: "the broker started",
    BROKER_JOINED: lambda change: f"broker {change.detail} joined the cluster",
    BROKER_LEFT: lambda change: f"broker {change.detail} left the cluster",
    STOPPING: lambda change: "the broker is draining: it accepts no new jobs",
}
