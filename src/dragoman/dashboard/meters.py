"""Meters: rates and quantiles of one service over the last 10 seconds, from readings of its counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from operator import add as plus
from typing import Final, NamedTuple

from dragoman.core.histogram import Histogram
from dragoman.core.model import Service
from dragoman.core.states import DONE, FAILED, LOST, TIMED_OUT
from dragoman.dashboard.history import SLOT
from dragoman.dashboard.quantiles import SHARES, difference, quantiles
from dragoman.operations.service_views import ServiceRates

WINDOW: Final = 10.0  # seconds
NO_COUNTS: Final = Histogram().counts
NOTHING: Final[Mapping[str, int]] = {}


class Reading(NamedTuple):
    """Counters at one moment."""

    at: float
    arrived: int
    done: int
    undone: int
    failed: int  # of the undone: failed, timed out, lost
    waited: list[int]
    ran: list[int]


class Meter:
    """The readings of the last 10 seconds, and the last one before them. Counters that do not move are not read."""

    __slots__ = ("_readings",)

    def __init__(self, first: Reading) -> None:
        self._readings = deque([first])

    @property
    def last(self) -> Reading:
        return self._readings[-1]

    def add(self, reading: Reading) -> None:
        self._readings.append(reading)
        self._first(reading.at)

    def ended(self, now: float) -> tuple[int, int, int]:
        """Return the numbers of jobs of the last 10 seconds: done, undone, and of the undone the failed ones."""
        first, last = self._first(now), self._readings[-1]
        return last.done - first.done, last.undone - first.undone, last.failed - first.failed

    def rates(self, now: float) -> ServiceRates:
        """Return the numbers of the last 10 seconds, or since the first reading."""
        first = self._first(now)
        passed = now - first.at
        # An older reading still has the counters of 10 seconds ago: nothing moved in between.
        return between(self._readings[-1], first, max(WINDOW if passed > WINDOW + SLOT else passed, 1.0))

    def _first(self, now: float) -> Reading:
        readings = self._readings
        while len(readings) > 1 and readings[1].at <= now - WINDOW:
            readings.popleft()
        return readings[0]


def zero(at: float) -> Reading:
    """Return the reading of a service that has had no job."""
    return Reading(at, 0, 0, 0, 0, NO_COUNTS, NO_COUNTS)


def between(last: Reading, first: Reading, seconds: float) -> ServiceRates:
    """Return the numbers between two readings. In a cluster, a job that moves to another broker is counted there."""
    return ServiceRates(
        round(max(0, last.arrived - first.arrived) / seconds, 3),
        round(max(0, last.done - first.done) / seconds, 3),
        round(max(0, last.undone - first.undone) / seconds, 3),
        quantiles(difference(last.waited, first.waited), SHARES),
        quantiles(difference(last.ran, first.ran), SHARES),
    )


def add(total: Reading, last: Reading, first: Reading, now: float) -> Reading:
    """Return a total with what was counted between two readings."""
    return Reading(
        now,
        total.arrived + last.arrived - first.arrived,
        total.done + last.done - first.done,
        total.undone + last.undone - first.undone,
        total.failed + last.failed - first.failed,
        list(map(plus, total.waited, difference(last.waited, first.waited))),
        list(map(plus, total.ran, difference(last.ran, first.ran))),
    )


def read(service: Service, now: float, running: int = 0, ended: Mapping[str, int] = NOTHING) -> Reading:
    """Read the counters of a service. Jobs that were accepted are those that are present and those that have ended.
    `running`, `ended`: jobs of other brokers, which are left out; by outcome."""
    undone = service.undone
    count, done = sum(undone.values()), service.done
    failed = undone[FAILED] + undone[TIMED_OUT] + undone[LOST]
    if ended:
        done -= ended.get(DONE.value, 0)
        count -= sum(ended.values()) - ended.get(DONE.value, 0)
        failed -= sum(ended.get(each.value, 0) for each in (FAILED, TIMED_OUT, LOST))
    arrived = service.jobs - running + done + count
    return Reading(now, arrived, done, count, failed, service.waited.counts, service.ran.counts)
