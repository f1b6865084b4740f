"""Lines of `dragoman tail`: one for each event of a job or a worker."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from dragoman.cli.tables import plain
from dragoman.cli.terminal import padded, shortened, text_width

MOST_JOBS = 10_000  # running jobs whose start is remembered
WIDEST_SERVICE = 24  # columns
STATE_WIDTH = len("timed out")
ID_DIGITS = 12
WORKER_KINDS = ("joined", "left")


class EventLines:
    """Makes lines from events. It remembers when jobs started, for the time that they took."""

    def __init__(self, painted: Callable[[str], str] = str) -> None:
        """`painted` adds the colour of a state or an outcome."""
        self._painted = painted
        self._running: OrderedDict[str, tuple[float, str]] = OrderedDict()  # start and worker of each job
        self._width = 0  # of the services so far
        self._broker_width = 0  # of the brokers so far; 0: there is no cluster

    def line(self, name: str, fields: Mapping[str, Any], now: float, clock: str) -> str:
        """The line for an event at this time, which `clock` shows."""
        is_worker = name in WORKER_KINDS
        id = "" if is_worker else str(fields["id"])[:ID_DIGITS]
        service = plain(", ".join(fields["services"]) if is_worker else fields["service"])
        self._width = max(self._width, min(text_width(service), WIDEST_SERVICE))
        service = padded(shortened(service, self._width), self._width)
        state = fields["outcome"] if name == "ended" else name
        if not is_worker and self._is_retried(name, fields):
            state = fields["last"]["outcome"]
        detail = self._worker(fields) if is_worker else self._job(name, fields, now)
        shown = self._painted(padded(state, STATE_WIDTH))
        return f"{clock}  {self._broker(fields)}{padded(id, ID_DIGITS)}  {service}  {shown}  {plain(detail)}".rstrip()

    def _broker(self, fields: Mapping[str, Any]) -> str:
        """The column of the broker, in a cluster."""
        broker = plain(fields.get("broker") or "")
        self._broker_width = max(self._broker_width, text_width(broker))
        return f"{padded(broker, self._broker_width)}  " if self._broker_width else ""

    def _worker(self, fields: Mapping[str, Any]) -> str:
        return f"worker {fields['name'] or fields['id']} ({fields['dialect']})"

    def _job(self, name: str, fields: Mapping[str, Any], now: float) -> str:
        if name == "running":
            self._running[fields["id"]] = now, fields.get("worker") or ""
            while len(self._running) > MOST_JOBS:
                self._running.popitem(last=False)
            return f"{attempt_of(fields)} at {worker_of(fields)}"
        if name == "progress":
            return f"at {fields.get('worker')}: {fields.get('progress', 'bytes')}"
        if name == "late":
            return f"result of {worker_of(fields)} dropped: attempt {fields['attempt']} has ended (D2)"
        if name == "ended":
            return self._end(fields, now)
        if self._is_retried(name, fields):
            return self._retry(name, fields)
        delay = f"starts in {duration(fields['delay'])}" if "delay" in fields else ""
        return ", ".join(filter(None, ("background job" if fields.get("background") else "", delay)))

    def _is_retried(self, name: str, fields: Mapping[str, Any]) -> bool:
        """True if an attempt has just ended: its end is shown once, not again when the delay is over."""
        return "last" in fields and (name == "delayed" or fields["id"] in self._running)

    def _retry(self, name: str, fields: Mapping[str, Any]) -> str:
        """The end of an attempt that is not the last: its duration, its worker, its reason, and what follows."""
        self._running.pop(fields["id"], None)
        last = fields["last"]
        text = f"after {duration(last['seconds'])} at {last['worker']}"
        reason = f": {last['reason']}" if last.get("reason") else ""
        follows = f"retry in {duration(fields['delay'])}" if "delay" in fields else "retry at once"
        return f"{text}{reason}; {follows}"

    def _end(self, fields: Mapping[str, Any], now: float) -> str:
        """The time and the place of the last attempt, and the reason unless the job is done."""
        parts = []
        if fields["id"] in self._running:
            start, worker = self._running.pop(fields["id"])
            parts.append(f"after {duration(now - start)} at {worker}")
        if fields.get("quarantined"):
            parts.append("in quarantine")
        text = ", ".join(parts)
        reason = fields.get("reason", "") if fields["outcome"] != "done" else ""
        return f"{text}: {reason}" if text and reason else text or reason


def attempt_of(fields: Mapping[str, Any]) -> str:
    most = f" of {fields['max_attempts']}" if fields.get("max_attempts") else ""
    return f"attempt {fields['attempt']}{most}"


def worker_of(fields: Mapping[str, Any]) -> str:
    dialect = f" ({fields['dialect']})" if fields.get("dialect") else ""
    return f"{fields.get('worker')}{dialect}"


def duration(seconds: float) -> str:
    """`0.4 ms`, `12 ms`, `1.5 s`, `31 s`, `12 min`, `3 h`, `2 d`."""
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
