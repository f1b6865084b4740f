"""Warnings about requests without the right to them: one line per principal, right, service, dialect and interval.

Some dialects have no message for such a refusal. Then this line is the only help, so it names the file to edit.
"""

from __future__ import annotations

from math import inf
from typing import Final

from dragoman.core.counters import UNNAMED, Counters
from dragoman.server.drops import LogFunction
from dragoman.server.rate_limit import RateLimit

INTERVAL: Final = 60.0  # seconds between two warnings about the same right
LOOK: Final = 1.0  # seconds between two checks
MOST_LINES: Final = 20  # in one check; the next check continues
OTHERS: Final = "(too many names)"


class RightWarnings:
    """Reports what `Counters.unlogged_rights` has collected: a first refusal at once, later ones once per interval."""

    def __init__(self, counters: Counters, log: LogFunction) -> None:
        self._counters = counters
        self._log = log
        self._next_look = -inf
        self._lines = RateLimit(1, INTERVAL)  # by principal, right, service and dialect

    def look(self, now: float) -> None:
        if now < self._next_look:
            return
        self._next_look = now + LOOK
        unlogged = self._counters.unlogged_rights
        due = [each for each in unlogged if self._lines.is_open(each, now)]
        for each in due[:MOST_LINES]:
            self._lines.take(each, now)
            self._report(*each, unlogged.pop(each))

    def close(self) -> None:
        """Report what is left, before the broker stops."""
        unlogged, self._counters.unlogged_rights = self._counters.unlogged_rights, {}
        for each in list(unlogged)[:MOST_LINES]:
            self._report(*each, unlogged[each])

    def _report(self, principal: str, right: str, service: str, dialect: str, count: int) -> None:
        self._log(
            "warning",
            "right refused",
            principal=principal,
            right=str(right),
            service=OTHERS if service == UNNAMED else service,
            dialect=dialect,
            count=count,
            file=f"access/{principal}.toml",
            advice=f"if {principal} is to have this right, run `dragoman access allow {principal} --{right} SERVICE`, "
            "or edit the file and reload; otherwise correct the program",
        )
