"""Warnings about jobs that were refused or timed out in the queue: one line per service and interval."""

from __future__ import annotations

from math import inf
from typing import Protocol

from dragoman.core.counters import QUEUE_TIMEOUT, UNNAMED, Counters, Dropped
from dragoman.core.states import RefusalReason
from dragoman.server.rate_limit import RateLimit

INTERVAL = 60.0  # seconds between two warnings about one service
LOOK = 1.0  # seconds between two checks of the counts
MOST_LINES = 20  # in one check; the next check continues

OTHERS = "(unknown or too many names)"

ADVICE = {
    QUEUE_TIMEOUT: "add workers for this service, or raise queue_timeout of the listener. "
    "Callers in Majordomo and MemoDB get no reply, because their protocols have no message for it",
    RefusalReason.BUSY: "the reason names the limit: add workers, submit more slowly, or raise the limit",
    RefusalReason.NO_SUCH_SERVICE: "start a worker that offers the service, or correct the name in the caller",
    RefusalReason.KEY_REUSED: "correct the caller: one idempotency key belongs to one payload",
    RefusalReason.TOO_LARGE: "send less in one payload, or raise the limit in the file of the principal",
    RefusalReason.PARTITIONED: "check NATS and the other brokers of the cluster: `dragoman cluster status`",
    RefusalReason.INVALID: "correct the caller: the reason says what is wrong",
}


class LogFunction(Protocol):
    def __call__(self, level: str, event: str, **fields: object) -> None: ...


class DropWarnings:
    """Reports what `Counters.dropped` has collected: a service's first drop at once, later ones once per interval."""

    def __init__(self, counters: Counters, log: LogFunction) -> None:
        self._counters = counters
        self._log = log
        self._next_look = -inf
        self._lines = RateLimit(1, INTERVAL)  # by service

    def look(self, now: float) -> None:
        if now < self._next_look:
            return
        self._next_look = now + LOOK
        dropped = self._counters.dropped
        due = [service for service in dropped if self._lines.is_open(service, now)]
        for service in due[:MOST_LINES]:
            self._lines.take(service, now)
            self._report(service, dropped.pop(service))

    def close(self) -> None:
        """Report what is left, before the broker stops."""
        dropped, self._counters.dropped = self._counters.dropped, {}
        for service in list(dropped)[:MOST_LINES]:
            self._report(service, dropped[service])

    def _report(self, service: str, dropped: Dropped) -> None:
        causes = dropped.causes
        most = max(causes, key=causes.__getitem__)
        self._log(
            "warning",
            "jobs dropped",
            service=OTHERS if service == UNNAMED else service,
            count=sum(causes.values()),
            causes={str(cause): count for cause, count in causes.items()},
            reason=dropped.reason,
            advice=ADVICE[most],
        )
