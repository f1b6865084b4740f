"""The sampler: reads the counters of all services and counts all workers, every 2 seconds, and records the history.

A sample is a generator that yields between small pieces of work, so that its caller can let jobs pass meanwhile. A
service whose counters did not move since the last sample is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from math import nan
from typing import Final

from dragoman.core.broker import Broker
from dragoman.core.infinity import inf
from dragoman.core.job_counts import count_all
from dragoman.core.model import Service
from dragoman.core.reached_limits import limit_of_queue
from dragoman.dashboard.census import Census
from dragoman.dashboard.history import SLOT, History, slot_of
from dragoman.dashboard.meters import NOTHING, Meter, Reading, add, between, read, zero
from dragoman.dashboard.quantiles import rounded
from dragoman.operations.service_need import service_need
from dragoman.operations.service_views import CLUSTER, OtherBrokers, ServiceRates

MAX_SERIES: Final = 250  # services with a history of their own; all others share one
MOST_SERVICES: Final = 60  # services in a snapshot
MOST_NOTABLE: Final = 500
AT_ONCE: Final = 20  # services between two steps of a sample
RECOUNT: Final = 9.0  # seconds between two counts of the workers while no reader watches
FEW_WORKERS: Final = 1_000  # they are counted in about a millisecond
SHORTEST: Final = 0.001  # seconds between two samples
RETIRED: Final = 300  # slots without a move after which a history may be replaced

Moves = tuple[int, int, int, int, int]


class Tracked:
    """The state of one service at its last sample."""

    __slots__ = ("meter", "moves")

    def __init__(self, meter: Meter, moves: Moves) -> None:
        self.meter = meter
        self.moves = moves


class Sampler:
    """Samples one broker. `at`: time of the last complete sample."""

    def __init__(self, broker: Broker, now: float) -> None:
        self._broker = broker
        self._tracked: dict[Service, Tracked] = {}
        self._slot = slot_of(now - SLOT / 2)
        self.at = now
        self.census = Census()
        self._counted_at = -inf
        self.histories: dict[str, History] = {}
        self.total = self._new_total(now)
        self.other = self._new_total(now)
        self.total_history = History(self._slot)
        self.other_history = History(self._slot)
        self.first: list[Service] = []  # services that need attention first
        self.notable: list[Service] = []  # services in which jobs wait, or did not succeed lately
        self._has_baseline = False
        self.is_baseline = True  # the last sample has jobs of an earlier run, which have not come since the one before
        self._loadings = 0
        self.others: OtherBrokers | None = None  # of the cluster; the server sets it
        self.most_services = MOST_SERVICES

    def sample(self, now: float, *, is_watched: bool = True) -> Iterator[None]:
        """Take a sample. Yields now and then, so that the caller can pause. Without a reader, workers are counted less
        often."""
        registry = self._broker.worker_registry
        census = self.census
        if is_watched or now - self._counted_at >= RECOUNT:
            census, self._counted_at = self._new_census(), now
            yield from census.count(list(registry.workers.values()), now)
        jobs = self._broker.job_registry
        is_baseline = not self._has_baseline or jobs.is_loading or jobs.loadings != self._loadings
        self.is_baseline, self._loadings = is_baseline, jobs.loadings
        slot = slot_of(now - SLOT / 2)
        slots, seconds = slot - self._slot, max(now - self.at, SHORTEST)
        total, other = self.total.last, self.other.last
        other_waiting = other_running = 0
        others = self.others
        taken = others.running_by_service() if others is not None else NOTHING
        ranked: list[tuple[int, str, Service]] = []
        notable: list[Service] = []
        for number, service in enumerate(list(registry.services.values())):
            length = service.queue.length
            running = service.running - taken.get(service.name, 0)
            moves = (service.done, service.jobs, sum(service.undone.values()), length, running)
            tracked = self._tracked.get(service)
            is_new = tracked is None
            if tracked is None:
                tracked = self._track(service, moves, is_baseline, now)
            has_moved = tracked.moves != moves or (is_new and service.jobs > 0)
            history = self._history_of(service, has_moved, slot)
            if has_moved:
                ended = others.ended(service.name) if others is not None else NOTHING
                reading = read(service, now, taken.get(service.name, 0), ended)
                last = reading if is_baseline else tracked.meter.last
                if is_baseline:
                    tracked.meter = Meter(reading)
                else:
                    tracked.meter.add(reading)
                    total = add(total, reading, last, now)
                    if history is None:
                        other = add(other, reading, last, now)
                if history is not None:
                    history.record(slot, _row(between(reading, last, seconds), length, running), slots)
                tracked.moves = moves
            if history is None:
                other_waiting += length
                other_running += running
            ranked.append((-self.need(service, now), service.name, service))
            if (length or tracked.meter.ended(now)[2]) and len(notable) < MOST_NOTABLE:
                notable.append(service)
            if number % AT_ONCE == AT_ONCE - 1:
                yield
        self._forget()
        counts = count_all(self._broker)
        running = counts.running - sum(taken.values())
        self._record(self.total, self.total_history, total, (counts.waiting, running), slot, now)
        if len(self.histories) >= MAX_SERIES:
            self._record(self.other, self.other_history, other, (other_waiting, other_running), slot, now)
        self.first = [each[-1] for each in nsmallest(self.most_services, ranked)]
        self.census, self.notable = census, notable
        self.at, self._slot, self._has_baseline = now, slot, True

    def recount(self, now: float) -> None:
        """Count the workers for a reader that has just come, unless they are counted already, or many."""
        workers = self._broker.worker_registry.workers
        if now - self._counted_at >= SLOT and len(workers) <= FEW_WORKERS:
            census, self._counted_at = self._new_census(), now
            for _ in census.count(workers.values(), now):
                pass
            self.census = census

    def rates(self, service: Service) -> ServiceRates:
        """Return the rates and quantiles of a service in the 10 seconds before the last sample."""
        tracked = self._tracked.get(service)
        return tracked.meter.rates(self.at) if tracked is not None else NO_RATES

    def service_rates(self, service: Service) -> ServiceRates | None:
        """Return the same for lists, rounded. None: the service was not there at the last sample."""
        if service not in self._tracked:
            return None
        rates = self.rates(service)
        return rates._replace(wait=rounded(rates.wait), run=rounded(rates.run))

    def failed_share(self, service: Service) -> float:
        """Return the share of failed, timed out and lost jobs among those that did not end `done` lately."""
        tracked = self._tracked.get(service)
        _, undone, failed = tracked.meter.ended(self.at) if tracked is not None else (0, 0, 0)
        return failed / undone if undone else 0.0

    def total_rates(self) -> ServiceRates:
        return self.total.rates(self.at)

    def need(self, service: Service, now: float) -> int:
        """Return the number by which services that need attention come first."""
        tracked, waiting = self._tracked.get(service), service.queue.length
        done, undone, _ = tracked.meter.ended(self.at) if tracked is not None else (0, 0, 0)
        waited = oldest(service, now) if waiting else 0.0
        is_limited = limit_of_queue(service, now) is not None
        return service_need(waiting, waited, service.workers, service.paused, done, undone, is_limited)

    def by_need(self, services: Iterable[Service], now: float) -> list[Service]:
        """Return the 60 services of these that need attention first; more in a cluster."""
        ranked = [(-self.need(each, now), each.name, each) for each in services]
        return [each[-1] for each in nsmallest(self.most_services, ranked)]

    @property
    def slot(self) -> int:
        """The slot of the last sample."""
        return self._slot

    # ---------------------------------------------------------------- helpers

    def _track(self, service: Service, moves: Moves, is_baseline: bool, now: float) -> Tracked:
        """Begin to track a service. Unless this is the first sample, it has come since the last one, from zero."""
        if is_baseline:
            others = self.others
            running = others.running(service.name) if others is not None else 0
            ended = others.ended(service.name) if others is not None else NOTHING
            tracked = Tracked(Meter(read(service, now, running, ended)), moves)
        else:
            tracked = Tracked(Meter(zero(self.at)), (0, 0, 0, 0, 0))
        self._tracked[service] = tracked
        return tracked

    def _history_of(self, service: Service, has_moved: bool, slot: int) -> History | None:
        """Return the history of a service; None: it has none of its own. Services that only callers have named have at
        most half of all histories: a client could invent any number of names."""
        history = self.histories.get(service.name)
        if history is not None or not has_moved:
            return history
        if not service.is_known and len(self.histories) >= MAX_SERIES // 2:
            return None
        if len(self.histories) >= MAX_SERIES:
            name, stalest = min(self.histories.items(), key=lambda item: item[1].moved_at)
            if slot - stalest.moved_at < RETIRED:
                return None
            del self.histories[name]
        history = self.histories[service.name] = History(self._slot)
        return history

    def _record(
        self, meter: Meter, history: History, reading: Reading, jobs: tuple[int, int], slot: int, now: float
    ) -> None:
        """Record a total. `jobs`: those that wait, those that run."""
        rates = between(reading, meter.last, max(now - self.at, SHORTEST))
        meter.add(reading._replace(at=now))
        history.record(slot, _row(rates, *jobs), slot - self._slot)

    def _forget(self) -> None:
        """Forget services that the broker has forgotten."""
        services = self._broker.worker_registry.services
        if len(self._tracked) > len(services):
            self._tracked = {each: kept for each, kept in self._tracked.items() if services.get(each.name) is each}

    def _new_census(self) -> Census:
        return Census(CLUSTER if self.others is not None else "")

    @staticmethod
    def _new_total(now: float) -> Meter:
        return Meter(zero(now))


NO_RATES: Final = ServiceRates(0.0, 0.0, 0.0, [None] * 3, [None] * 3)


def oldest(service: Service, now: float) -> float:
    """Return the seconds that the next job of a service has waited."""
    head = service.queue.oldest()
    return round(max(0.0, now - head.arrival), 3) if head is not None else 0.0


def _row(rates: ServiceRates, waiting: int, running: int) -> list[float]:
    quantiles = [nan if each is None else each for each in (*rates.wait, *rates.run)]
    return [rates.arrived, rates.done, rates.undone, waiting, running, *quantiles]
