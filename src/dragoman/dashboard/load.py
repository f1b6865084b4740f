"""Load of the broker over the last 10 seconds: processor time, lag, commits, outcomes, pairs of dialects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from dragoman.core.counters import Counters
from dragoman.core.histogram import Histogram
from dragoman.core.states import Outcome
from dragoman.dashboard.quantiles import difference, quantile
from dragoman.operations.service_views import OtherBrokers

WINDOW: Final = 10.0  # seconds
BAD_WINDOW: Final = 60.0  # seconds in which bad messages are counted


class LoadReading(NamedTuple):
    """Counters of the broker at one moment."""

    at: float
    cpu: float  # processor time of the process, in seconds
    dashboard: float  # of that, for dashboards
    lag: list[int]
    commits: list[int]
    undone: dict[Outcome, int]
    refused: int
    flow: dict[tuple[str, str], tuple[int, float]]  # jobs and broker time, by the dialects of caller and worker


class Load:
    """Readings of the broker's counters."""

    def __init__(
        self,
        counters: Counters,
        lag: Histogram,
        commits: Callable[[], Histogram],
        cpu: Callable[[], float],
        now: float,
    ) -> None:
        self._counters = counters
        self._lag = lag
        self._commits = commits
        self._cpu = cpu
        self.spent = 0.0  # seconds that were spent for dashboards
        self.others: OtherBrokers | None = None  # of the cluster; the server sets it
        self._bad: deque[tuple[float, dict[tuple[str, str], int]]] = deque()
        self._readings = deque([self._read(now)])
        self.sample(now)

    def sample(self, now: float) -> None:
        self._readings.append(self._read(now))
        while len(self._readings) > 2 and self._readings[1].at <= now - WINDOW:
            self._readings.popleft()
        self._bad.append((now, dict(self._counters.bad_messages)))
        while len(self._bad) > 1 and self._bad[1][0] <= now - BAD_WINDOW:
            self._bad.popleft()

    @property
    def cpu(self) -> float:
        """Share of one core that the process uses."""
        return (self._last.cpu - self._first.cpu) / self._seconds

    @property
    def dashboard(self) -> float:
        """Share of one core that is spent for dashboards."""
        return (self._last.dashboard - self._first.dashboard) / self._seconds

    @property
    def lag_p99(self) -> float | None:
        return quantile(difference(self._last.lag, self._first.lag), 0.99)

    @property
    def commit_p99(self) -> float | None:
        return quantile(difference(self._last.commits, self._first.commits), 0.99)

    def undone(self) -> dict[str, float]:
        """Jobs a second that ended otherwise than `done`, by outcome. `refused` has refused submits, too."""
        rates = {
            outcome.value: max(0, count - self._first.undone[outcome]) / self._seconds
            for outcome, count in self._last.undone.items()
            if outcome is not Outcome.DONE
        }
        rates[Outcome.REFUSED.value] += (self._last.refused - self._first.refused) / self._seconds
        return {name: round(each, 3) for name, each in rates.items()}

    def flow(self) -> list[tuple[str, str, float, float]]:
        """Jobs a second from the callers of a dialect to the workers of a dialect, and the mean seconds that the broker
        adds to each; the most frequent pair first. Jobs of an earlier run are left out: their callers are not known."""
        found = []
        for (caller, worker), (count, spent) in self._last.flow.items():
            before, spent_before = self._first.flow.get((caller, worker), (0, 0.0))
            if caller and count > before:
                added = (spent - spent_before) / (count - before)
                found.append((caller, worker, round((count - before) / self._seconds, 3), round(added, 6)))
        return sorted(found, key=lambda each: -each[2])

    def bad_messages(self) -> dict[str, int]:
        """Messages in the last minute that violate their dialect, by dialect."""
        found: dict[str, int] = {}
        before = self._bad[0][1]
        for (dialect, reason), count in self._bad[-1][1].items():
            more = count - before.get((dialect, reason), 0)
            if more:
                found[dialect] = found.get(dialect, 0) + more
        return found

    @property
    def _first(self) -> LoadReading:
        return self._readings[0]

    @property
    def _last(self) -> LoadReading:
        return self._readings[-1]

    @property
    def _seconds(self) -> float:
        return max(self._last.at - self._first.at, 1.0)

    def _read(self, now: float) -> LoadReading:
        counters = self._counters
        return LoadReading(
            now,
            self._cpu(),
            self.spent,
            self._lag.counts,
            self._commits().counts,
            self._undone(),
            counters.refused,
            {pair: (cell.count, cell.broker_time) for pair, cell in counters.flow.items()},
        )

    def _undone(self) -> dict[Outcome, int]:
        """Return the jobs that did not end `done`, by outcome, without those that other brokers count."""
        counts = dict(self._counters.undone)
        if self.others is not None:
            for name, count in self.others.ended(None).items():
                outcome = Outcome(name)
                if outcome in counts:
                    counts[outcome] -= count
        return counts
