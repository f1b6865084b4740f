"""Metrics of this process, by the usual names."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROC = Path("/proc")


def process_numbers() -> Iterator[tuple[str, float]]:
    """Yield the name and value of each metric. Without /proc, only those that the system offers otherwise."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield "process_cpu_seconds_total", used.ru_utime + used.ru_stime
    yield "process_max_fds", float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        pages = (PROC / "self" / "statm").read_text().split()
        yield "process_virtual_memory_bytes", float(int(pages[0]) * resource.getpagesize())
        yield "process_resident_memory_bytes", float(int(pages[1]) * resource.getpagesize())
        yield "process_open_fds", float(len(os.listdir(PROC / "self" / "fd")))
        yield "process_start_time_seconds", _started()
    except OSError:
        return


@cache
def _started() -> float:
    """Return the start time of this process, which the kernel counts in ticks since its boot (man 5 proc)."""
    stat = (PROC / "self" / "stat").read_text()
    ticks = float(stat.rpartition(")")[2].split()[19])
    for line in (PROC / "stat").read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    raise OSError("/proc/stat has no btime")
