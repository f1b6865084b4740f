"""Which services have series of their own in the metrics: a bounded number of those that workers offer (T21)."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.core.histogram import Histogram
from dragoman.core.model import Service
from dragoman.core.states import Outcome

MOST_SERVICES = 1_000
OTHER = "other"


class Tally:
    """What is counted of a service; or of all those together that have no series of their own."""

    __slots__ = ("delayed", "ended", "oldest", "ran", "running", "waited", "waiting")

    def __init__(self) -> None:
        self.ended = dict.fromkeys(Outcome, 0)
        self.waited = Histogram()
        self.ran = Histogram()
        self.waiting = 0
        self.delayed = 0
        self.running = 0
        self.oldest = 0.0

    def add(self, service: Service, running: int, now: float) -> None:
        for outcome, count in service.ended.items():
            self.ended[outcome] += count
        _add(self.waited, service.waited)
        _add(self.ran, service.ran)
        waiting = service.queue.length
        self.waiting += waiting
        self.running += running
        self.delayed += max(0, service.jobs - waiting - running)
        first = service.queue.head()
        if first is not None:
            self.oldest = max(self.oldest, now - first.arrival)

    def never_less_than(self, before: Tally) -> None:
        """Counters never fall, or a scraper would take them for started anew and count all of them once more."""
        for outcome, count in before.ended.items():
            self.ended[outcome] = max(self.ended[outcome], count)
        _rise(self.waited, before.waited)
        _rise(self.ran, before.ran)


class ServiceLabels:
    """Remembers from scrape to scrape who has a series of its own, and what the others had together.

    A name that only callers have said is among the others: anybody could make up as many as there is room for.
    """

    def __init__(self) -> None:
        self._own: dict[str, None] = {}
        self._before = Tally()

    def choose(self, services: Mapping[str, Service]) -> dict[Service, str]:
        """Who has a series of its own now, and the label of each. Who had one keeps it as long as it is known."""
        self._own = {name: None for name in self._own if name in services}
        for name, service in services.items():
            if len(self._own) >= MOST_SERVICES:
                break
            if service.is_known and name != OTHER:
                self._own[name] = None
        return {services[name]: name for name in self._own}

    def others(self, tally: Tally) -> Tally:
        """What the others have together: they become fewer when one is forgotten, or gets a series of its own."""
        tally.never_less_than(self._before)
        self._before = tally
        return tally


def _add(total: Histogram, one: Histogram) -> None:
    if any(one.counts):
        total.counts = [a + b for a, b in zip(total.counts, one.counts, strict=True)]
        total.total += one.total


def _rise(total: Histogram, before: Histogram) -> None:
    total.counts = [max(a, b) for a, b in zip(total.counts, before.counts, strict=True)]
    total.total = max(total.total, before.total)
