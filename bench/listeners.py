"""Background jobs: enqueued jobs a second, each acknowledged once it is on disk, or only in memory.

Every caller has its own connection and one pending job, and there are no workers: the listener, the core and the store
are measured. beanstalkd and Redis stand beside them, configured to sync before they acknowledge.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from statistics import median
from time import perf_counter

from bench.brokers import Kind, data_folder
from bench.compare import Comparison
from bench.generator import Shape
from bench.measure import NotMeasured
from bench.queues.home import find_beanstalkd, find_redis
from bench.table import block, verdict

SIZE = 512
CALLERS = (1, 100)
DURABLE_SHAPES = tuple(Shape(workers=0, window=callers, size=SIZE) for callers in CALLERS)
STORE_TARGET = 0.5  # fraction of the jobs a second without a store, where many callers share a sync
SYNCS = 300


def _ours(mode: str, place: str) -> tuple[Kind, Kind]:
    """Return the same listener with a store and without."""
    command = ("{dragoman}", "serve", place, "--data")
    return Kind(f"{mode}, store", mode, (*command, "{data}")), Kind(f"{mode}, memory", mode, (*command, "memory"))


LISTENERS = (_ours("native", "tcp://127.0.0.1:{frontend}"), _ours("http", "http://127.0.0.1:{frontend}"))
OURS = tuple(kind for listener in LISTENERS for kind in listener)
BEANSTALKD = ("beanstalkd", "-l", "127.0.0.1", "-p", "{frontend}", "-b", "{data}", "-f0")
REDIS = (
    *("redis-server", "--bind", "127.0.0.1", "--port", "{frontend}", "--dir", "{data}", "--save", ""),
    *("--appendonly", "yes", "--appendfsync", "always"),
)


def find_others() -> tuple[list[Kind], list[str]]:
    """Return the other servers, and the reasons why some are missing."""
    kinds, missing = [], []
    try:
        kinds.append(Kind("beanstalkd -f0", "beanstalkd", BEANSTALKD, find_beanstalkd()))
    except NotMeasured as problem:
        missing.append(f"beanstalkd: NOT MEASURED: {problem}")
    try:
        kinds.append(Kind("Redis, always", "redis", REDIS, find_redis()))
    except NotMeasured as problem:
        missing.append(f"Redis: NOT MEASURED: {problem}")
    return kinds, missing


def one_sync_us() -> float:
    """Measure one small synced write, in microseconds: the minimum wait of a caller that is alone."""
    with data_folder() as folder:
        descriptor = os.open(os.path.join(folder, "sync"), os.O_WRONLY | os.O_CREAT)
        try:
            return median(_syncs(descriptor)) * 1e6
        finally:
            os.close(descriptor)


def _syncs(descriptor: int) -> Iterator[float]:
    for _ in range(SYNCS):
        start = perf_counter()
        os.write(descriptor, bytes(4096))
        os.fsync(descriptor)
        yield perf_counter() - start


def durable_table(comparisons: Sequence[Comparison], load: str, sync_us: float, missing: Sequence[str]) -> str:
    """Return a row for each server and number of callers, then the store's share of the rate, and the missing
    servers."""
    header = ("callers", "", "jobs/s", "p50 µs", "p99 µs", "broker CPU µs/job", "load CPU µs/job", "clean runs")
    rows = [header, *(_cells(each, name) for each in comparisons for name in each.runs)]
    title = f"background jobs of {SIZE} bytes, each acknowledged (load: {load}); one sync takes {sync_us:,.0f} µs"
    verdicts = [_verdict(each, *listener) for each in comparisons for listener in LISTENERS]
    return "\n".join([*block(title, rows), *verdicts, *missing])


def _cells(comparison: Comparison, name: str) -> Sequence[str]:
    figures = comparison.figures(name)
    return (
        str(comparison.shape.window),
        name,
        f"{figures.rate:,.0f}",
        f"{figures.p50_us:,.0f}",
        f"{figures.p99_us:,.0f}",
        f"{figures.broker_us:,.1f}",
        f"{figures.load_us:,.1f}",
        f"{figures.clean}/{figures.runs}" if figures.clean else "NONE",
    )


def _verdict(comparison: Comparison, stored: Kind, memory: Kind) -> str:
    """Return the verdict. There is no target for one caller alone, which waits for a sync each time."""
    with_store, without = comparison.figures(stored.name), comparison.figures(memory.name)
    ratio = with_store.rate / max(without.rate, 1e-9)
    callers = comparison.shape.window
    is_clean = bool(with_store.clean and without.clean)
    goal = verdict(ratio, STORE_TARGET if callers > 1 else None, is_clean=is_clean, at_least=True)
    return f"{stored.mode}, {callers} at a time, jobs/s with a store beside without: {ratio:.2f}  {goal}".rstrip()
