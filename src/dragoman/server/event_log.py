"""Writes log lines about events of the core: workers that join and leave, paused services, refused rights, acts of
administrators, acts on many jobs, the drain of the broker.

The lines and fields are the same in every dialect. The lines about workers, services and acts on many jobs pass through
the limit of all lines (`reports.py`, R215), so that a worker that joins and leaves repeatedly does not flood the log.
Acts of administrators are logged without limit.
"""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Final

from dragoman.core.events import (
    ADMINISTERED,
    BROKER_DRAINING,
    RIGHT_REFUSED,
    SERVICE_LIMITS_DIFFER,
    SERVICE_PAUSED,
    SERVICE_RESUMED,
    WORKER_DRAINING,
    WORKER_JOINED,
    WORKER_LEFT,
    AdministrationEvent,
    BrokerEvent,
    Event,
    Events,
    RefusalEvent,
    ServiceEvent,
    WorkerEvent,
)
from dragoman.operations.bulk_acts import BulkAct
from dragoman.operations.handlers import OperationHandlers
from dragoman.server.drops import LogFunction
from dragoman.server.rate_limit import RateLimit
from dragoman.server.reports import LineLimit, source_of

KINDS: Final = (
    WORKER_JOINED
    | WORKER_DRAINING
    | WORKER_LEFT
    | SERVICE_PAUSED
    | SERVICE_RESUMED
    | SERVICE_LIMITS_DIFFER
    | BROKER_DRAINING
    | RIGHT_REFUSED
    | ADMINISTERED
)  # none of them occurs for each job

RIGHT_INTERVAL: Final = 60.0  # seconds between two lines about the same missing right

NAMES: Final = {
    WORKER_JOINED: "worker joined",
    WORKER_DRAINING: "worker draining",
    WORKER_LEFT: "worker left",
    SERVICE_PAUSED: "service paused",
    SERVICE_RESUMED: "service resumed",
    SERVICE_LIMITS_DIFFER: "limits differ",
    RIGHT_REFUSED: "right refused",
}
BULK_ACTS: Final = {"retry": "jobs retried", "cancel": "jobs cancelled", "delete": "jobs deleted"}


class EventLog:
    """The log as a subscriber. It subscribes only to the kinds that it writes, so jobs cost nothing extra."""

    def __init__(self, events: Events, log: LogFunction, drain_timeout: float, lines: LineLimit | None = None) -> None:
        """`lines`: the limit that all lines share."""
        self._log = log
        self._lines = lines or LineLimit(log)
        self._drain_timeout = drain_timeout
        self._by_right = RateLimit(1, RIGHT_INTERVAL)  # a refused program tries again and again
        events.subscribe(KINDS, self.receive)

    def receive(self, event: Event, now: float) -> None:
        if isinstance(event, WorkerEvent):
            if not event.is_restored:
                self._write(event.kind, event.peer or event.name, _worker_fields(event), now)
        elif isinstance(event, ServiceEvent) and event.kind == SERVICE_LIMITS_DIFFER:
            fields: dict[str, object] = {
                "service": event.name,
                "limits": event.limits,
                "note": "its workers declare different limits; the lowest hold",
                "advice": f"declare the same in all workers, or: dragoman limit {quote(event.name)}",
            }
            self._write(event.kind, event.name, fields, now, "warning")
        elif isinstance(event, ServiceEvent):
            by = {"by": event.by} if event.by else {}
            self._write(event.kind, event.name, {"service": event.name, **by}, now)
        elif isinstance(event, RefusalEvent):
            fact = (event.principal, event.right, event.services, event.dialect)
            if self._by_right.take(fact, now) == 1:
                self._write(event.kind, event.principal, _refusal_fields(event), now, "warning")
        elif isinstance(event, AdministrationEvent):
            self._log(
                "info",
                "administered",
                principal=event.principal,
                operation=event.operation,
                target=event.target,
                peer=event.peer,
            )
        elif isinstance(event, BrokerEvent):
            self._log("info", "draining", running=event.running, seconds=self._drain_timeout)

    def _write(self, kind: int, source: str, fields: dict[str, object], now: float, level: str = "info") -> None:
        self._lines.write(source_of(source), now, level, NAMES[kind], fields)


def log_bulk_act(lines: LineLimit, act: BulkAct, now: float) -> None:
    """Write one line about an act on many jobs that has ended, with the number of jobs."""
    if act.act not in BULK_ACTS:
        return  # the log has the request of an administrator
    fields: dict[str, object] = {"jobs": act.done, "of": act.of, "by": act.owner.principal.name}
    if act.service:
        fields = {"service": act.service, **fields}
    if act.left_out:
        fields["left_out"] = act.left_out
    if act.problem:
        fields["problem"] = act.problem
    source = f"principal {act.owner.principal.name}"
    if act.group:
        lines.write(source, now, "info", "group retried", {"group": act.group, **fields})
    else:
        lines.write(source, now, "info", BULK_ACTS[act.act], fields)


def _worker_fields(event: WorkerEvent) -> dict[str, object]:
    fields: dict[str, object] = {
        "worker": event.name,
        "id": event.id,
        "dialect": event.dialect,
        "services": list(event.services),
        "capacity": event.capacity,
    }
    if event.peer:
        fields["peer"] = event.peer
    if event.kind == WORKER_LEFT:
        fields |= {"reason": event.reason, "held": event.held}
    return fields


def _refusal_fields(event: RefusalEvent) -> dict[str, object]:
    patterns = " ".join(f"--{event.right} {quote(each)}" for each in event.services)
    return {
        "principal": event.principal,
        "right": str(event.right),
        "service": ", ".join(event.services),
        "dialect": event.dialect,
        "advice": f"if it is to have this right: dragoman access allow {event.principal} {patterns}",
    }


def log_operations(operations: OperationHandlers, lines: LineLimit, clock: Callable[[], float]) -> None:
    """Log what schedules and acts on many jobs do by themselves. `clock` is not the one that recordings have."""

    def paused(name: str, reason: str) -> None:
        lines.write("schedules", clock(), "warning", "schedule paused", {"name": name, "reason": reason})

    operations.scheduler.when_paused = paused
    operations.bulk_acts.when_over = lambda act: log_bulk_act(lines, act, clock())
