"""Log lines about connections and internal errors, with limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.core.counters import Counters
from dragoman.core.infinity import inf
from dragoman.core.owners import network_of
from dragoman.dialects import interface
from dragoman.server.drops import LogFunction
from dragoman.server.rate_limit import RateLimit

LINES_OF_SOURCE: Final = 20  # in a second
LINES: Final = 200  # in a second, of all sources
SHOWN_SOURCES: Final = 5  # in the line about those that were left out


class Reports:
    """Writes log lines. Those that others can cause pass through one limit (R215)."""

    def __init__(self, counters: Counters, clock: Callable[[], float], log: LogFunction) -> None:
        self._counters = counters
        self._clock = clock
        self._log = log
        self.lines = LineLimit(log)
        self._bad_messages = RateLimit(1, 1.0)  # by connection; so below
        self._remarks = RateLimit(1, 1.0)

    def remark(
        self, event: str, /, *, level: str = "info", peer: interface.Connection | None = None, **fields: object
    ) -> None:
        """Log a line. Its source is the address of the connection, an address or a worker among the fields, or else the
        broker itself, which has no limit."""
        source = ""
        if peer is not None:
            source = peer.address or peer.label
            fields["peer"] = peer.label
        source = source or str(fields.get("address") or fields.get("worker") or "")
        if source:
            self.lines.write(source_of(source), self._clock(), level, event, fields)
        else:
            self._log(level, event, **fields)

    def remark_of(self, source: str, event: str, /, *, level: str = "info", **fields: object) -> None:
        """Log a line that this source has caused."""
        self.lines.write(source, self._clock(), level, event, fields)

    def remark_limited(
        self, event: str, /, *, peer: interface.Connection, level: str = "info", **fields: object
    ) -> None:
        """Log a line about a connection, at most one a second."""
        if self._remarks.take(peer, self._clock()) == 1:
            self.remark(event, level=level, peer=peer, **fields)

    def bad_message(self, peer: interface.Connection, reason: str, detail: str) -> None:
        """Log a warning about a message that cannot be decoded, at most once a second for each connection."""
        if self._bad_messages.take(peer, self._clock()) == 1:
            self.remark("bad message", level="warning", peer=peer, reason=reason, detail=detail)

    def forget(self, peer: interface.Connection) -> None:
        """Forget a connection that has ended."""
        self._bad_messages.forget(peer)
        self._remarks.forget(peer)

    def log_limited(self, event: str, /, *, peer: interface.Connection | None = None, **fields: object) -> None:
        """Log a warning about a rejected or closed connection. If its address is not known, the event is the source."""
        if peer is None and not fields.get("address") and not fields.get("worker"):
            self.remark_of(event, event, level="warning", **fields)
        else:
            self.remark(event, level="warning", peer=peer, **fields)

    def admitted(self, peer: interface.Connection, level: str, **fields: object) -> None:
        """Log a connection whose principal is known. Refused connections of its address do not silence it."""
        source = f"principal {fields.get('principal')}"
        self.remark_of(source, "connection admitted", level=level, peer=peer.label, **fields)

    def internal_error(self, error: BaseException, peer: interface.Connection | None = None, **fields: object) -> None:
        """Count and log an internal error of the broker."""
        self._counters.internal_errors += 1
        self.remark("internal error", level="error", peer=peer, error=repr(error), exception=error, **fields)


class LineLimit:
    """The one limit of log lines that others can cause: `LINES_OF_SOURCE` of a source in a second, and `LINES` of all.

    What it leaves out is counted, and one line has the count when the second is over. Only acts of administrators and
    lines about the broker itself do not pass through it (R215).
    """

    def __init__(self, log: LogFunction) -> None:
        self.left_out: dict[str, int] = {}  # in this second, by source
        self._log = log
        self._ends = -inf
        self._counts: dict[str, int] = {}
        self._total = 0

    def write(self, source: str, now: float, level: str, event: str, fields: dict[str, object]) -> None:
        """Write a line that this source has caused, unless a limit is reached."""
        if now >= self._ends:
            self.flush()
            self._ends = now + 1.0
            self._counts.clear()
            self._total = 0
        key = source if level != "debug" else f"debug: {source}"  # such a line takes the place of no other one
        count = self._counts.get(key, 0)
        if count >= LINES_OF_SOURCE or self._total >= LINES:
            self.left_out[source] = self.left_out.get(source, 0) + 1
            return
        self._counts[key] = count + 1
        self._total += level != "debug"
        self._log(level, event, **fields)

    def look(self, now: float) -> None:
        """Write the count of the lines that were left out, if their second is over."""
        if now >= self._ends:
            self.flush()

    def flush(self) -> None:
        """Write the count of the lines that were left out."""
        if self.left_out:
            left_out, self.left_out = self.left_out, {}
            most = sorted(left_out, key=left_out.__getitem__, reverse=True)[:SHOWN_SOURCES]
            sources = {source: left_out[source] for source in most}
            self._log("warning", "log lines left out", count=sum(left_out.values()), sources=sources)


def source_of(label: str) -> str:
    """Return the source of lines about a connection: its address without the port."""
    if label.startswith("["):
        return network_of(label[1:].partition("]")[0])
    if label.count(":") > 1 and "/" not in label:
        return network_of(label)
    host, _, port = label.rpartition(":")
    return host if host and port.isdigit() else label
