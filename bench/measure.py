"""Figures of a process and the machine from /proc, the selection of runs that count, and their medians."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

MOST_FOREIGN_CORES = 0.2
MOST_STEAL_CORES = 0.1

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_CORES = os.sysconf("SC_NPROCESSORS_ONLN")
_PAGE_KIB = os.sysconf("SC_PAGESIZE") // 1024


class NotMeasured(Exception):
    """There is no valid figure; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run, as printed by the load. `wrong` or `missing` replies make it invalid."""

    jobs: int
    seconds: float
    rate: float
    p50_us: float
    p99_us: float
    broker_us: float
    broker_user_us: float
    broker_system_us: float
    load_us: float
    broker_rss_kib: int
    foreign_cores: float
    steal_cores: float
    wrong: int
    missing: int

    @property
    def is_clean(self) -> bool:
        """Return whether other processes and the hypervisor used almost no CPU."""
        return self.foreign_cores < MOST_FOREIGN_CORES and self.steal_cores < MOST_STEAL_CORES

    @property
    def dirt(self) -> float:
        """Return the degree of disturbance; at most 1 if the run is clean."""
        return max(self.foreign_cores / MOST_FOREIGN_CORES, self.steal_cores / MOST_STEAL_CORES)


@dataclass(frozen=True, slots=True)
class Figures:
    """The medians of the runs of one configuration. If none was clean, they are over all runs, and `clean` is 0."""

    rate: float
    p50_us: float
    p99_us: float
    broker_us: float
    load_us: float
    broker_rss_kib: float
    clean: int
    runs: int


def figures_of(runs: Iterable[Run]) -> Figures:
    """Return medians over the clean runs, or over all runs if none is clean."""
    everything = list(runs)
    clean = [run for run in everything if run.is_clean]
    counted = clean or everything
    return Figures(
        rate=median(run.rate for run in counted),
        p50_us=median(run.p50_us for run in counted),
        p99_us=median(run.p99_us for run in counted),
        broker_us=median(run.broker_us for run in counted),
        load_us=median(run.load_us for run in counted),
        broker_rss_kib=median(run.broker_rss_kib for run in counted),
        clean=len(clean),
        runs=len(everything),
    )


@dataclass(frozen=True, slots=True)
class Process:
    """CPU seconds a process has used so far, with all its threads, and the memory it holds now."""

    user: float
    system: float
    rss_kib: int


def read_process(pid: int) -> Process:
    """Read /proc/PID/stat. The name in field 2 may hold spaces, so the fields are counted from the last bracket."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    utime, stime, pages = fields[11], fields[12], fields[21]
    return Process(int(utime) * _TICK, int(stime) * _TICK, int(pages) * _PAGE_KIB)


def count_open_files(pid: int) -> int:
    """Return the number of open file descriptors, an upper limit of the connections of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))


@dataclass(frozen=True, slots=True)
class Reading:
    """The clocks at one moment: CPU seconds so far that were idle, stolen, used by this process and used by the broker.

    Idle time is read instead of busy time: the kernel counts idle time exactly, but busy time only at ticks, and a
    process that sleeps at every tick would not be counted.
    """

    at: float
    idle: float
    steal: float
    own: float
    broker: Process


def take_reading(broker_pid: int) -> Reading:
    """Read all clocks at once. Process 0 stands for no process and uses nothing."""
    with open("/proc/stat") as file:
        _user, _nice, _system, idle, iowait, _irq, _softirq, steal = map(int, file.readline().split()[1:9])
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Reading(
        at=time.monotonic(),
        idle=(idle + iowait) * _TICK,
        steal=steal * _TICK,
        own=own.ru_utime + own.ru_stime,
        broker=read_process(broker_pid) if broker_pid else Process(0.0, 0.0, 0),
    )


def run_between(before: Reading, after: Reading, latencies_ns: list[int], wrong: int, missing: int) -> Run:
    """Return the run between two readings; each latency belongs to one finished job."""
    latencies_ns.sort()
    jobs = len(latencies_ns)
    seconds = after.at - before.at
    user = after.broker.user - before.broker.user
    system = after.broker.system - before.broker.system
    own = after.own - before.own
    unused = after.idle - before.idle + after.steal - before.steal
    foreign = _CORES * seconds - unused - own - user - system
    us_per_job = 1e6 / max(jobs, 1)
    return Run(
        jobs=jobs,
        seconds=seconds,
        rate=jobs / seconds,
        p50_us=_percentile(latencies_ns, 0.50) / 1e3,
        p99_us=_percentile(latencies_ns, 0.99) / 1e3,
        broker_us=(user + system) * us_per_job,
        broker_user_us=user * us_per_job,
        broker_system_us=system * us_per_job,
        load_us=own * us_per_job,
        broker_rss_kib=after.broker.rss_kib,
        foreign_cores=foreign / seconds,
        steal_cores=(after.steal - before.steal) / seconds,
        wrong=wrong,
        missing=missing,
    )


def _percentile(ordered: list[int], share: float) -> float:
    return ordered[int((len(ordered) - 1) * share)] if ordered else 0.0
