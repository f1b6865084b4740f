"""Simulation of a large cluster: many brokers, workers and jobs in one process, on a virtual clock.

    python -m bench.scale --brokers 32 --workers 100000 --jobs 1000000

The brokers are the product's code, without sockets (`scale_model.py`). Workers are spread unevenly: a quarter of the
brokers has none, and each service is at some of the others only. Calls arrive at random brokers, as a Poisson process
whose rate uses the share `--load` of all workers. Each worker runs one job at a time and sends heartbeats.

The report has the outcomes of all jobs, messages and bytes on NATS, hops, refused hops, waiting times on the virtual
clock, and CPU and memory of this process. CPU is that of the brokers' iterations alone. It depends on the machine and
on whether the product is compiled; the rest depends on the seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from time import perf_counter

from bench.scale_model import STEP, Cluster, Member, Traffic
from dragoman.core import broker as core_broker
from dragoman.server.tuning import collect_rarely

JOIN_SECONDS = 4.0
IDLE_SECONDS = 5.0
LONGEST = 600.0  # seconds of the virtual clock until all jobs must have ended


@dataclass(frozen=True, slots=True)
class Size:
    """The parameters of a simulation."""

    brokers: int = 3
    workers: int = 60
    jobs: int = 2_000
    services: int = 24
    load: float = 0.7
    run_time: float = 1.0
    heartbeat: float = 5.0
    latency: int = 1
    loss: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages of one kind: how many, and their size."""

    published: int
    published_per_second: float
    delivered_per_second: float
    bytes_per_second: float
    bytes_per_message: float

    @classmethod
    def of(cls, traffic: Traffic, seconds: float) -> Rates:
        return cls(
            traffic.published,
            traffic.published / seconds,
            traffic.delivered / seconds,
            traffic.bytes / seconds,
            traffic.bytes / max(1, traffic.published),
        )


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds from submit to start."""

    jobs: int
    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, waits: Sequence[float]) -> Waits:
        ordered = sorted(waits)
        if not ordered:
            return cls(0, 0.0, 0.0, 0.0)
        return cls(len(ordered), ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1])


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of one simulation."""

    size: Size
    is_compiled: bool
    wall_seconds: float
    load_seconds: float  # on the virtual clock, from the first submit to the last outcome
    # outcomes
    submitted: int
    done: int
    lost: int  # jobs without an outcome
    doubled: int  # jobs with two outcomes or more
    ran_twice: int
    wrong: int
    left_over: int  # jobs that a broker still has at the end
    # messages
    idle_gossip: Rates
    idle_links: Rates
    gossip: Rates
    links: Rates
    lost_messages: int
    messages_per_job: float
    link_messages_per_job: float
    bytes_per_job: float
    # hops
    hop_share: float
    gives: int
    busy: int
    busy_share: float
    # waiting
    local_waits: Waits
    hop_waits: Waits
    # CPU and memory
    cpu_per_job_us: float
    cpu_without_gossip_us: float
    gossip_received_us: float
    idle_cpu_share: float  # of a core, by one broker
    busy_cpu_share: float  # of a core, by the busiest broker
    worker_bytes: float
    broker_mib: float
    peak_mib: float


def simulate(size: Size, tell: Callable[[str], None] = lambda line: None) -> Report:
    """Run one simulation."""
    begun, base = perf_counter(), resident()
    collect_rarely()
    cluster = Cluster(
        size.brokers, size.jobs, seed=size.seed, latency=size.latency, loss=size.loss, run_time=size.run_time
    )
    cluster.heartbeat = size.heartbeat
    cluster.run_until(lambda: all(len(each.side.peers) == size.brokers - 1 for each in cluster.members), JOIN_SECONDS)
    before = resident()
    by_service = spread_workers(cluster, size)
    after = resident()
    cluster.run_for(1.5)
    tell(f"{size.brokers} brokers joined, {size.workers:,} workers registered after {perf_counter() - begun:.0f} s")
    idle = Phase(cluster)
    cluster.run_for(IDLE_SECONDS)
    idle.end()
    busy = Phase(cluster)
    submit_all(cluster, size, by_service, tell)
    cluster.run_until(lambda: cluster.jobs.ended >= size.jobs, LONGEST)
    busy.end()
    cluster.run_for(5.0)  # whatever would be doubled arrives by then
    jobs = cluster.jobs
    hops = len(jobs.hop_waits)
    starts = len(jobs.local_waits) + hops
    gives = sum(each.broker.counters.dispatched for each in cluster.members) - starts  # the rest are to other brokers
    refused = gives - hops
    return Report(
        size=size,
        is_compiled=not str(core_broker.__file__).endswith(".py"),
        wall_seconds=perf_counter() - begun,
        load_seconds=busy.seconds,
        submitted=jobs.submitted,
        done=jobs.done,
        lost=jobs.outcomes.count(0),
        doubled=sum(1 for each in jobs.outcomes if each > 1),
        ran_twice=sum(1 for each in jobs.runs if each > 1),
        wrong=jobs.wrong,
        left_over=sum(len(each.broker.jobs) for each in cluster.members),
        idle_gossip=Rates.of(idle.gossip, idle.seconds),
        idle_links=Rates.of(idle.links, idle.seconds),
        gossip=Rates.of(busy.gossip, busy.seconds),
        links=Rates.of(busy.links, busy.seconds),
        lost_messages=cluster.gossip.lost + cluster.links.lost,
        messages_per_job=(busy.gossip.published + busy.links.published) / size.jobs,
        link_messages_per_job=busy.links.published / size.jobs,
        bytes_per_job=(busy.gossip.bytes + busy.links.bytes) / size.jobs,
        hop_share=hops / size.jobs,
        gives=gives,
        busy=refused,
        busy_share=refused / max(1, gives),
        local_waits=Waits.of(jobs.local_waits),
        hop_waits=Waits.of(jobs.hop_waits),
        cpu_per_job_us=sum(busy.cpu) / size.jobs * 1e6,
        cpu_without_gossip_us=(sum(busy.cpu) - busy.gossip_cpu) / size.jobs * 1e6,
        gossip_received_us=busy.gossip_cpu / max(1, busy.gossip.delivered) * 1e6,
        idle_cpu_share=sum(idle.cpu) / size.brokers / idle.seconds,
        busy_cpu_share=max(busy.cpu) / busy.seconds,
        worker_bytes=(after - before) / size.workers,
        broker_mib=(resident() - base) / size.brokers / (1 << 20),
        peak_mib=peak() / (1 << 20),
    )


class Phase:
    """Traffic and CPU from one moment to another."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._since = cluster.now
        self._cpu = [each.cpu for each in cluster.members]
        self._gossip_cpu = sum(each.gossip_cpu for each in cluster.members)
        self.gossip, self.links = cluster.gossip.copy(), cluster.links.copy()

    def end(self) -> None:
        cluster = self._cluster
        self.seconds = cluster.now - self._since
        self.gossip, self.links = cluster.gossip - self.gossip, cluster.links - self.links
        self.cpu = [each.cpu - before for each, before in zip(cluster.members, self._cpu, strict=True)]
        self.gossip_cpu = sum(each.gossip_cpu for each in cluster.members) - self._gossip_cpu


# ---------------------------------------------------------------- workers and calls


def spread_workers(cluster: Cluster, size: Size) -> dict[str, int]:
    """Register all workers, unevenly. Returns their number for each service."""
    random = Random(f"workers {size.seed}")
    with_workers = cluster.members[: max(1, size.brokers - size.brokers // 4)]
    places: list[tuple[Member, str, float]] = []
    for index in range(size.services):
        chosen = random.sample(with_workers, max(1, len(with_workers) // 2))
        for rank, member in enumerate(chosen):
            places.append((member, f"service-{index}", 1.0 / ((1 + index) * (1 + rank)) ** 0.7))
    counts: dict[str, int] = {}
    ends = list(accumulate(weight for _, _, weight in places))
    begin = 0
    for (member, service, _), end in zip(places, ends, strict=True):
        upto = round(size.workers * end / ends[-1])
        member.add_workers(service, upto - begin)
        counts[service] = counts.get(service, 0) + upto - begin
        begin = upto
    return {service: count for service, count in counts.items() if count}


def submit_all(cluster: Cluster, size: Size, by_service: dict[str, int], tell: Callable[[str], None]) -> None:
    """Submit all jobs, for each service in proportion to its workers."""
    random = Random(f"calls {size.seed}")
    per_step = size.load * size.workers / size.run_time * STEP
    names, weights = list(by_service), list(accumulate(by_service.values()))
    submitted, next_at, clock = 0, random.expovariate(per_step), 0.0
    begun = perf_counter()
    while submitted < size.jobs:
        clock += 1.0
        count = 0
        while next_at <= clock and submitted + count < size.jobs:
            count += 1
            next_at += random.expovariate(per_step)
        services = random.choices(names, cum_weights=weights, k=count)
        cluster.step([(random.choice(cluster.members), service) for service in services])
        submitted += count
        if round(clock) % 1_000 == 0:
            ended = cluster.jobs.ended
            tell(f"{clock * STEP:.0f} s: {submitted:,} submitted, {ended:,} ended, {perf_counter() - begun:.0f} s real")


# ---------------------------------------------------------------- this process


def resident() -> int:
    """Return the bytes of memory that this process has."""
    return _kib("VmRSS") * 1024


def peak() -> int:
    return _kib("VmHWM") * 1024


def _kib(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise AssertionError(f"{name} is not in /proc/self/status")


# ---------------------------------------------------------------- the command


def text(report: Report) -> str:
    size = report.size

    def rates(name: str, each: Rates) -> str:
        return (
            f"{name:24} {each.published_per_second:10,.0f} published/s {each.delivered_per_second:10,.0f} delivered/s "
            f"{each.bytes_per_second / 1e6:8.2f} MB/s published {each.bytes_per_message:7,.0f} bytes a message"
        )

    def waits(name: str, each: Waits) -> str:
        longest = f"longest {each.longest * 1e3:,.0f}"
        return f"{name:24} {each.jobs:,} jobs, p50 {each.p50 * 1e3:.0f} ms, p99 {each.p99 * 1e3:,.0f} ms, {longest} ms"

    lines = [
        f"{size.brokers} brokers, {size.workers:,} workers, {size.jobs:,} jobs, {size.services} services, "
        f"load {size.load:g}, jobs of {size.run_time:g} s, loss {size.loss:g}, seed {size.seed}, "
        f"{'compiled' if report.is_compiled else 'interpreted'}",
        f"{'time':24} {report.load_seconds:.1f} s virtual under load, {report.wall_seconds:.0f} s real in all",
        f"{'outcomes':24} {report.submitted:,} submitted, {report.done:,} done, {report.lost} lost, "
        f"{report.doubled} doubled, {report.ran_twice} ran twice, {report.wrong} wrong, {report.left_over} left over",
        rates("gossip, idle", report.idle_gossip),
        rates("links, idle", report.idle_links),
        rates("gossip, under load", report.gossip),
        rates("links, under load", report.links),
        f"{'messages a job':24} {report.messages_per_job:.3f}, without gossip {report.link_messages_per_job:.3f}; "
        f"{report.bytes_per_job:,.0f} bytes; {report.lost_messages:,} deliveries lost",
        f"{'hops':24} {report.hop_share:.1%} of jobs; {report.gives:,} given, {report.busy:,} answered busy "
        f"({report.busy_share:.2%})",
        waits("waited, local worker", report.local_waits),
        waits("waited, other broker", report.hop_waits),
        f"{'CPU':24} {report.cpu_per_job_us:.1f} µs a job, {report.cpu_without_gossip_us:.1f} without received gossip; "
        f"{report.gossip_received_us:.1f} µs a gossip received; one broker {report.idle_cpu_share:.1%} of a core idle, "
        f"the busiest {report.busy_cpu_share:.1%} under load",
        f"{'memory':24} {report.worker_bytes:,.0f} bytes a worker, {report.broker_mib:.1f} MiB a broker, "
        f"{report.peak_mib:,.0f} MiB in all at most",
    ]
    return "\n".join(lines)


def main() -> None:
    defaults = Size()
    parser = argparse.ArgumentParser("python -m bench.scale", description="Simulate a large cluster in one process.")
    parser.add_argument("--brokers", type=int, default=32, help="Brokers, 1 to 64 (default: %(default)s).")
    parser.add_argument("--workers", type=int, default=100_000, help="Workers (default: %(default)s).")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="Jobs (default: %(default)s).")
    parser.add_argument("--services", type=int, default=defaults.services, help="Services (default: %(default)s).")
    parser.add_argument(
        "--load", type=float, default=defaults.load, help="Share of busy workers (default: %(default)s)."
    )
    parser.add_argument(
        "--run-time", type=float, default=defaults.run_time, help="Mean seconds of a job (default: %(default)s)."
    )
    parser.add_argument(
        "--heartbeat", type=float, default=defaults.heartbeat,
        help="Seconds between two heartbeats of a worker; 0: none (default: %(default)s).",
    )  # fmt: skip
    parser.add_argument("--latency", type=int, default=defaults.latency, help="Milliseconds of a message (default: 1).")
    parser.add_argument("--loss", type=float, default=defaults.loss, help="Share of lost deliveries (default: 0).")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="Seed (default: 0).")
    parser.add_argument("--json", type=Path, help="Write the figures to this file.")
    options = vars(parser.parse_args())
    path = options.pop("json")
    report = simulate(Size(**options), lambda line: print(line, file=sys.stderr, flush=True))
    print(text(report))
    if path is not None:
        path.write_text(json.dumps(asdict(report), indent=1) + "\n")


if __name__ == "__main__":
    main()
