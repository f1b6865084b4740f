"""Log lines about connections and internal errors, with limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.core.counters import Counters
from dragoman.dialects import interface
from dragoman.server.drops import LogFunction
from dragoman.server.rate_limit import RateLimit

WARNINGS_PER_SECOND: Final = 20  # warnings per second about rejected or closed connections


class Reports:
    """Writes log lines, and limits those that one or many connections can cause."""

    def __init__(self, counters: Counters, clock: Callable[[], float], log: LogFunction) -> None:
        self._counters = counters
        self._clock = clock
        self._log = log
        self._warnings = RateLimit(WARNINGS_PER_SECOND, 1.0)
        self._admissions = RateLimit(WARNINGS_PER_SECOND, 1.0)
        self._bad_messages = RateLimit(1, 1.0)  # by connection; so below
        self._remarks = RateLimit(1, 1.0)

    def remark(
        self, event: str, /, *, level: str = "info", peer: interface.Connection | None = None, **fields: object
    ) -> None:
        if peer is not None:
            fields["peer"] = peer.label
        self._log(level, event, **fields)

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
        """Log a warning about a rejected or closed connection, up to the limit for all of them."""
        more = self._warnings.fields_of_line(None, self._clock())
        if more is not None:
            self.remark(event, level="warning", peer=peer, **fields, **more)

    def admitted(self, peer: interface.Connection, level: str, **fields: object) -> None:
        """Log a connection whose principal is known, up to a limit for all of them."""
        more = self._admissions.fields_of_line(None, self._clock())
        if more is not None:
            self.remark("connection admitted", level=level, peer=peer, **fields, **more)

    def internal_error(self, error: BaseException, peer: interface.Connection | None = None, **fields: object) -> None:
        """Count and log an internal error of the broker."""
        self._counters.internal_errors += 1
        self.remark("internal error", level="error", peer=peer, error=repr(error), exception=error, **fields)
