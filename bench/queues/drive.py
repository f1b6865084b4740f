"""Client program: drives one system, and prints one JSON line. Runs with the Python that has that system's packages."""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count

from bench.measure import MOST_FOREIGN_CORES, MOST_STEAL_CORES
from bench.queues.clocks import Reading, foreign_cores, take_reading
from bench.queues.echo import WHO, Calls

SIZE = 100
JOIN_LIMIT = 20.0
MOST_CALL_SECONDS = 3.0  # of consecutive calls


class Wrong(Exception):
    """A wrong result."""


@dataclass(frozen=True, slots=True)
class QueueRun:
    """One measured run: many jobs in a window, then consecutive calls."""

    jobs: int
    seconds: float
    rate: float
    client_us: float
    broker_us: float
    workers_us: float
    calls: int
    p50_us: float
    p99_us: float
    foreign_cores: float
    steal_cores: float

    @property
    def is_clean(self) -> bool:
        """Return whether other processes used almost no CPU, in both halves."""
        return self.dirt < 1

    @property
    def dirt(self) -> float:
        """Return the degree of disturbance; under 1 if the run is clean."""
        return max(self.foreign_cores / MOST_FOREIGN_CORES, self.steal_cores / MOST_STEAL_CORES)


def main() -> None:
    """Wait for the workers, warm up, measure both."""
    options = _options()
    with importlib.import_module(options.program).calls(options.place) as calls:
        _meet(calls, options)
        run = _measure(calls, options)
    print(json.dumps(asdict(run)), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.queues.drive")
    parser.add_argument("program", help="module with the calls")
    parser.add_argument("place")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--processes", type=int, default=2, help="number of worker processes to wait for")
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--call-seconds", type=float, default=1.0, help="minimum seconds of consecutive calls")
    parser.add_argument("--brokers", type=int, nargs="*", default=(), help="the broker's processes")
    parser.add_argument("--workers", type=int, nargs="*", default=(), help="the workers' processes")
    return parser.parse_args()


def _meet(calls: Calls, options: argparse.Namespace) -> None:
    """Wait until all worker processes have done a job."""
    met = {calls.one(WHO)}
    over = time.monotonic() + JOIN_LIMIT
    while len(met) < options.processes:
        met.update(calls.many(iter([WHO] * options.window), options.window))
        if time.monotonic() > over:
            raise Wrong(f"{len(met)} of {options.processes} worker processes did jobs")


def _measure(calls: Calls, options: argparse.Namespace) -> QueueRun:
    start, middle, jobs = _jobs_in_a_window(calls, options)
    begin = take_reading(options.brokers, options.workers)
    latencies = _one_after_another(calls, options)
    end = take_reading(options.brokers, options.workers)
    per_job = 1e6 / jobs
    seconds = middle.at - start.at
    return QueueRun(
        jobs=jobs,
        seconds=seconds,
        rate=jobs / seconds,
        client_us=(middle.client - start.client) * per_job,
        broker_us=(middle.broker - start.broker) * per_job,
        workers_us=(middle.workers - start.workers) * per_job,
        calls=len(latencies),
        p50_us=latencies[len(latencies) // 2] * 1e6,
        p99_us=latencies[int((len(latencies) - 1) * 0.99)] * 1e6,
        foreign_cores=max(foreign_cores(start, middle), foreign_cores(begin, end)),
        steal_cores=max((middle.steal - start.steal) / seconds, (end.steal - begin.steal) / (end.at - begin.at)),
    )


def _jobs_in_a_window(calls: Calls, options: argparse.Namespace) -> tuple[Reading, Reading, int]:
    """Keep the window full. Only jobs after the warm-up count; every result is checked."""
    before: Reading | None = None
    after: Reading | None = None
    sent, expected = _payloads(), _payloads()
    jobs = 0
    start = time.monotonic()

    def payloads() -> Iterator[str]:
        while after is None:
            yield next(sent)

    for result in calls.many(payloads(), options.window):
        if result != next(expected):
            raise Wrong(f"wrong result of a job: {result!r}")
        now = time.monotonic()
        if before is None:
            if now > start + options.warmup:
                before = take_reading(options.brokers, options.workers)
        elif after is None:
            jobs += 1
            if now > before.at + options.seconds:
                after = take_reading(options.brokers, options.workers)
    if before is None or after is None or next(sent) != next(expected):
        raise Wrong(f"results are missing after {jobs} jobs")
    return before, after, jobs


def _one_after_another(calls: Calls, options: argparse.Namespace) -> list[float]:
    """Return the seconds that each call took, sorted."""
    latencies: list[float] = []
    start = time.monotonic()
    for payload in _payloads():
        passed = time.monotonic() - start
        if (len(latencies) >= options.calls and passed > options.call_seconds) or passed > MOST_CALL_SECONDS:
            break
        begin = time.perf_counter()
        result = calls.one(payload)
        latencies.append(time.perf_counter() - begin)
        if result != payload:
            raise Wrong(f"wrong result of a call: {result!r}")
    return sorted(latencies)


def _payloads() -> Iterator[str]:
    for number in count():
        yield f"{number:0{SIZE}}"


if __name__ == "__main__":
    main()
