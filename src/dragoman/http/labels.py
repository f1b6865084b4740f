"""Labels of services and owners in the metrics: a limited number of each; all others are `other` (T21)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dragoman.core.histogram import Histogram
from dragoman.core.model import Service
from dragoman.core.reached_limits import limit_of_queue
from dragoman.core.rights import Principal
from dragoman.core.states import Outcome

MOST_SERVICES = 200
MOST_OWNERS = 200
OTHER = "other"


class Tally:
    """Numbers of a service, or of all services without their own series."""

    __slots__ = ("delayed", "dependent", "ended", "limited", "oldest", "ran", "running", "waited", "waiting")

    def __init__(self) -> None:
        self.ended = dict.fromkeys(Outcome, 0)
        self.waited = Histogram()
        self.ran = Histogram()
        self.waiting = 0
        self.delayed = 0
        self.dependent = 0
        self.running = 0
        self.oldest = 0.0
        self.limited = 0  # 1: jobs wait because of a limit of their service

    def add(self, service: Service, running: int, now: float) -> None:
        for outcome, count in service.ended.items():
            self.ended[outcome] += count
        _add(self.waited, service.waited)
        _add(self.ran, service.ran)
        waiting = service.queue.length
        self.waiting += waiting
        self.running += running
        self.dependent += service.dependent
        self.delayed += max(0, service.jobs - waiting - running - service.dependent)
        if limit_of_queue(service, now) is not None:
            self.limited = 1
        first = service.queue.oldest()
        if first is not None:
            self.oldest = max(self.oldest, now - first.arrival)

    def raise_to(self, before: Tally) -> None:
        """Raise counters to their former values: a scraper takes a lower value for a restart and counts it again."""
        for outcome, count in before.ended.items():
            self.ended[outcome] = max(self.ended[outcome], count)
        _raise_to(self.waited, before.waited)
        _raise_to(self.ran, before.ran)


class ServiceLabels:
    """Remembers between scrapes which services have their own series, and the sums of the others.

    A service that only callers have named belongs to the others: a client could invent any number of names.
    """

    def __init__(self) -> None:
        self._own: dict[str, None] = {}
        self._before = Tally()

    def choose(self, services: Mapping[str, Service]) -> dict[Service, str]:
        """Return the label of each service with its own series. A service keeps it as long as it is known. If it has no
        workers and no jobs, it gives its place to one that has."""
        own = {name: services[name] for name in self._own if name in services}
        new = [service for name, service in services.items() if service.is_known and name not in own and name != OTHER]
        if len(own) + len(new) > MOST_SERVICES:
            new.sort(key=_importance, reverse=True)
            needed = min(sum(_is_used(each) for each in new), MOST_SERVICES)
            for service in [each for each in own.values() if not _is_used(each)]:
                if len(own) + needed <= MOST_SERVICES:
                    break
                del own[service.name]
        own |= {service.name: service for service in new[: max(0, MOST_SERVICES - len(own))]}
        self._own = dict.fromkeys(own)
        return {service: name for name, service in own.items()}

    def others(self, tally: Tally) -> Tally:
        """Return the sums of the others. They shrink when a service is forgotten or gets its own series."""
        tally.raise_to(self._before)
        self._before = tally
        return tally


def waiting_of_owners(principals: Iterable[Principal]) -> dict[str, int]:
    """Return the waiting jobs of principals by label: of those with the most, and of the others together."""
    known = sorted(principals, key=lambda each: each.waiting, reverse=True)
    own = [each for each in known if each.name != OTHER][:MOST_OWNERS]
    found = {each.name: each.waiting for each in own}
    found[OTHER] = sum(each.waiting for each in known) - sum(found.values())
    return found


def _importance(service: Service) -> tuple[bool, int]:
    return service.workers > 0, service.jobs


def _is_used(service: Service) -> bool:
    return service.workers > 0 or service.jobs > 0


def _add(total: Histogram, one: Histogram) -> None:
    if any(one.counts):
        total.counts = [a + b for a, b in zip(total.counts, one.counts, strict=True)]
        total.total += one.total


def _raise_to(total: Histogram, before: Histogram) -> None:
    total.counts = [max(a, b) for a, b in zip(total.counts, before.counts, strict=True)]
    total.total = max(total.total, before.total)
