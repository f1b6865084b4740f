"""Background jobs: how many a second are handed in, each acknowledged once it is on disk, or only in memory.

Every caller has a connection of its own and one job under way, and nobody works: what is measured is the door, the core
and the diary. Beside it stand beanstalkd and Redis, told to sync before they answer.
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
DIARY_TARGET = 0.5  # of the jobs a second without one, where many callers share a sync
SYNCS = 300


def _ours(mode: str, place: str) -> tuple[Kind, Kind]:
    """The same door with a diary and without."""
    command = ("{dragoman}", "serve", place, "--data")
    return Kind(f"{mode}, diary", mode, (*command, "{data}")), Kind(f"{mode}, memory", mode, (*command, "memory"))


DOORS = (_ours("native", "tcp://127.0.0.1:{frontend}"), _ours("http", "http://127.0.0.1:{frontend}"))
OURS = tuple(kind for door in DOORS for kind in door)
BEANSTALKD = ("beanstalkd", "-l", "127.0.0.1", "-p", "{frontend}", "-b", "{data}", "-f0")
REDIS = (
    *("redis-server", "--bind", "127.0.0.1", "--port", "{frontend}", "--dir", "{data}", "--save", ""),
    *("--appendonly", "yes", "--appendfsync", "always"),
)


def find_others() -> tuple[list[Kind], list[str]]:
    """The servers that stand beside ours, and why others do not."""
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
    """How long the disk takes to make one small write safe: the least that a caller who is alone has to wait."""
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
    """A row for each server and number of callers; then what the diary leaves of the rate, and who is missing."""
    header = ("callers", "", "jobs/s", "p50 µs", "p99 µs", "broker CPU µs/job", "load CPU µs/job", "clean runs")
    rows = [header, *(_cells(each, name) for each in comparisons for name in each.runs)]
    title = f"background jobs of {SIZE} bytes, each acknowledged (load: {load}); one sync takes {sync_us:,.0f} µs"
    verdicts = [_verdict(each, *door) for each in comparisons for door in DOORS]
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


def _verdict(comparison: Comparison, diary: Kind, memory: Kind) -> str:
    """One caller alone waits for a sync each time: no share of the memory's rate is wanted there."""
    with_diary, without = comparison.figures(diary.name), comparison.figures(memory.name)
    ratio = with_diary.rate / max(without.rate, 1e-9)
    callers = comparison.shape.window
    is_clean = bool(with_diary.clean and without.clean)
    goal = verdict(ratio, DIARY_TARGET if callers > 1 else None, is_clean=is_clean, at_least=True)
    return f"{diary.mode}, {callers} at a time, jobs/s with a diary beside without: {ratio:.2f}  {goal}".rstrip()
