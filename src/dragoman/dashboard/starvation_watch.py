"""Searches for services whose jobs starve because of nested calls (R201), and reports each episode once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.model import Service
from dragoman.core.starvation import Starvation, starved

LASTING: Final = 1.0  # seconds that a finding must hold before it is reported: a handler may end without waiting
INTERVAL: Final = 60.0  # seconds between two reports about the same service
MOST_KNOWN: Final = 1_000  # services whose last report is remembered


class StarvationWatch:
    """Searches at each sample. `report` receives a service when its jobs have begun to starve."""

    def __init__(self, broker: Broker, report: Callable[[Starvation], None]) -> None:
        self._broker = broker
        self._report = report
        self._since: dict[str, float] = {}  # services that starve now, and since when
        self._reported: dict[str, float] = {}  # time of the last report, by service
        self._unreported: dict[str, None] = {}  # services of episodes without a report

    def search(self, candidates: Iterable[Service], now: float) -> list[Starvation]:
        """Return those of the services whose jobs starve now."""
        with_extras = self._broker.job_registry.with_extras
        if not with_extras.by_parent:
            self._since.clear()
            return []
        found = starved(candidates, self._broker.worker_registry.workers.values(), with_extras)
        self._since = {each.service.name: self._since.get(each.service.name, now) for each in found}
        for each in found:
            name = each.service.name
            if self._since[name] == now:
                self._unreported[name] = None
            elif name in self._unreported and now - self._since[name] >= LASTING:
                self._tell(each, now)
        return found

    def _tell(self, found: Starvation, now: float) -> None:
        """Report a service, unless it was reported a moment ago."""
        name = found.service.name
        del self._unreported[name]
        last = self._reported.get(name)
        if last is None or now - last >= INTERVAL:
            if len(self._reported) >= MOST_KNOWN:
                self._reported.clear()
            self._reported[name] = now
            self._report(found)
