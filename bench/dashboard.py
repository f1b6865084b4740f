"""Cost of dashboards: full native load on a broker with many idle workers and kept outcomes, without and with readers
of `/v1/live`. The same broker has both kinds of runs, in pairs; each pair gives one ratio."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from statistics import median, quantiles

from bench.brokers import Broker, Kind, free_ports, running
from bench.generator import Generator, Shape, find_submit_generator, run_load
from bench.measure import Figures, NotMeasured, Run, figures_of
from bench.parked import Crowd
from bench.table import block
from dragoman.dialects.memodb.codec import write_ready

READERS = 3
CONNECTIONS = 10  # of the idle workers
SHAPE = Shape(workers=4, window=100, size=100)
FILL = Shape(workers=1, window=200, size=100)
FILL_SECONDS = 2.0
FILL_LIMIT = 600.0
SETTLE = 3.0
LEAST_PAIRS = 10  # ratios of single pairs differ by 10 %
CPU_TARGET = 1.02
P99_TARGET = 1.05

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure with readers by the same figure without, over all clean pairs: the median and the middle half."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class DashboardCost:
    """Figures without and with readers. `share`: of one core for dashboards, as the broker reports it."""

    workers: int
    outcomes: int
    plain: Figures
    watched: Figures
    cpu: Ratio
    p99: Ratio
    pairs: int
    clean_pairs: int
    share: float
    snapshots: int
    bytes_each: int


def measure_dashboard(
    generator: Generator, workers: int, outcomes: int, seconds: float, warmup: float, pairs: int, tell: Tell
) -> DashboardCost:
    """Measure pairs of runs on one broker, without readers and with them. The order within a pair alternates."""
    pairs = max(pairs, LEAST_PAIRS)
    plain: list[Run] = []
    watched: list[Run] = []
    received: list[bytes] = []
    with crowded_broker(workers, outcomes, tell) as (broker, http, kept):
        for number in range(pairs):
            for readers in (0, READERS) if number % 2 == 0 else (READERS, 0):
                with _reading(http, readers, received):
                    run = run_load(generator, broker, SHAPE, warmup, seconds)
                (watched if readers else plain).append(run)
                tell(f"{readers} readers: {run.broker_us:.2f} µs of CPU a job, p99 {run.p99_us:,.0f} µs")
    if not received:
        raise NotMeasured("no snapshot was received")
    clean = [(each, other) for each, other in zip(plain, watched, strict=True) if each.is_clean and other.is_clean]
    if len(clean) < 2:
        raise NotMeasured(f"other processes disturbed all but {len(clean)} of {pairs} pairs")
    shares = [json.loads(each)["broker"]["dashboard"] for each in received]
    return DashboardCost(
        workers,
        kept,
        figures_of(plain),
        figures_of(watched),
        _ratio([other.broker_us / each.broker_us for each, other in clean]),
        _ratio([other.p99_us / each.p99_us for each, other in clean]),
        pairs,
        len(clean),
        median(shares),
        len(received),
        round(median(map(len, received))),
    )


def _ratio(ratios: list[float]) -> Ratio:
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return Ratio(middle, low, high)


@contextmanager
def crowded_broker(workers: int, outcomes: int, tell: Tell) -> Iterator[tuple[Broker, int, int]]:
    """Start a broker with this many idle workers and kept outcomes. Yields it, its port of HTTP, and the number of
    outcomes."""
    http, memodb = free_ports(2)
    command = (
        "{dragoman}",
        "serve",
        f"http://127.0.0.1:{http}",
        f"memodb+tcp://127.0.0.1:{memodb}?heartbeat_after=3600",
        "tcp://127.0.0.1:{frontend}",  # opened last: when it is open, the others are
        "--data",
        "memory",
    )
    with running(Kind("dashboard", "native", command)) as broker, ExitStack() as stack:
        crowds = [stack.enter_context(Crowd("127.0.0.1", memodb)) for _ in range(CONNECTIONS)]
        for crowd in crowds:
            crowd.grow_to(workers // CONNECTIONS, write_ready(["idle"]))
        kept = _fill(broker, http, outcomes, tell)
        time.sleep(SETTLE)
        yield broker, http, kept


def dashboard_table(cost: DashboardCost) -> str:
    plain, watched = cost.plain, cost.watched
    rows = [
        ("", "without", f"{READERS} readers", "ratio", "middle half", ""),
        ("jobs/s", f"{plain.rate:,.0f}", f"{watched.rate:,.0f}", f"{watched.rate / plain.rate:.3f}", "", ""),
        _row("broker CPU µs/job", plain.broker_us, watched.broker_us, cost.cpu, CPU_TARGET),
        _row("p99 µs", plain.p99_us, watched.p99_us, cost.p99, P99_TARGET),
    ]
    title = (
        f"dashboard: native echo, {cost.workers:,} idle workers, {cost.outcomes:,} kept outcomes; "
        f"medians of the ratios of {cost.clean_pairs} clean pairs of {cost.pairs}"
    )
    note = (
        f"{cost.snapshots} snapshots of {cost.bytes_each:,} bytes; {100 * cost.share:.2f} % of a core for dashboards, "
        "as the broker reports it"
    )
    return "\n".join([title, *block("", rows), note])


def _row(name: str, plain: float, watched: float, ratio: Ratio, target: float) -> tuple[str, ...]:
    answer = "yes" if ratio.median <= target else "no"
    spread = f"{ratio.low:.3f}-{ratio.high:.3f}"
    return name, f"{plain:,.2f}", f"{watched:,.2f}", f"{ratio.median:.3f}", spread, f"target ≤ {target:.2f}: {answer}"


def _fill(broker: Broker, http: int, outcomes: int, tell: Tell) -> int:
    """Enqueue background jobs and purge them, until enough outcomes are kept. Returns their number."""
    generator, deadline, kept = find_submit_generator(), time.monotonic() + FILL_LIMIT, 0
    while kept < outcomes:
        if time.monotonic() > deadline:
            raise NotMeasured(f"{kept} of {outcomes} outcomes are kept after {FILL_LIMIT:g} s")
        run_load(generator, broker, FILL, 0.1, FILL_SECONDS)
        _ask(http, "POST", "/v1/services/bench/purge")
        kept = json.loads(_ask(http, "GET", "/v1/overview"))["totals"]["kept"]
        tell(f"{kept:,} outcomes are kept")
    return kept


def _ask(port: int, method: str, path: str) -> bytes:
    with closing(HTTPConnection("127.0.0.1", port, timeout=FILL_LIMIT)) as connection:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise NotMeasured(f"{method} {path}: {response.status} {body[:200]!r}")
        return body


@contextmanager
def _reading(port: int, readers: int, received: list[bytes]) -> Iterator[None]:
    """Read snapshots in threads of this process, which sleep between two of them."""
    connections = [HTTPConnection("127.0.0.1", port, timeout=60.0) for _ in range(readers)]
    threads = [threading.Thread(target=_read, args=(each, received), daemon=True) for each in connections]
    for each in connections:
        each.request("GET", "/v1/live")
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each in connections:
            if each.sock is not None:
                each.sock.shutdown(2)
        for thread in threads:
            thread.join()


def _read(connection: HTTPConnection, received: list[bytes]) -> None:
    response = connection.getresponse()
    try:
        while line := response.readline():
            if line.startswith(b"data: "):
                received.append(line[6:])
    except (OSError, ValueError):
        return  # the connection was shut down
    finally:
        connection.close()
