"""Notices jobs that go into quarantine, by comparing the numbers of each service with those of the last sample."""

from __future__ import annotations

from typing import Final

from dragoman.core.kept_counts import KeptCounts
from dragoman.dashboard.changes import QUARANTINED, Changes
from dragoman.dashboard.facts import QuarantineFacts

FOLD: Final = 30.0  # seconds in which the quarantined jobs of a service are one change
RECENT: Final = 600.0  # seconds


class QuarantineGrowth:
    """The numbers of quarantined jobs at the last sample, by service."""

    def __init__(self, counts: KeptCounts, changes: Changes) -> None:
        self._counts = counts
        self._changes = changes
        self._total = -1
        self._before: dict[str, int] = {}

    def sample(self, now: float, is_news: bool) -> None:
        """Add a change for each service with more quarantined jobs than before. `is_news`: no jobs of an earlier run
        were restored since the last sample."""
        total = self._counts.total.quarantined
        if total == self._total:
            return
        found = {name: count.quarantined for name, count in self._counts.by_service.items() if count.quarantined}
        if self._total >= 0 and is_news:
            for name, count in found.items():
                more = count - self._before.get(name, 0)
                if more > 0:
                    self._changes.add(QUARANTINED, now, (name,), count=more, level="warning", fold=FOLD)
        self._total, self._before = total, found

    def recent(self, now: float) -> list[QuarantineFacts]:
        """Return the jobs of the last 10 minutes that are still in quarantine, by service."""
        found: dict[str, int] = {}
        for change in self._changes.since(now - RECENT):
            if change.kind == QUARANTINED and change.service is not None:
                found[change.service] = found.get(change.service, 0) + change.count
        still = {name: min(count, self._before.get(name, 0)) for name, count in found.items()}
        return [QuarantineFacts(service=name, count=count) for name, count in still.items() if count]
