"""CPU time by role. A broker or its workers may be many processes, so each role is a process with all its descendants,
and those of its session whose parents have ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_CORES = os.sysconf("SC_NPROCESSORS_ONLN")


@dataclass(frozen=True, slots=True)
class Reading:
    """The clocks at one moment: CPU seconds so far."""

    at: float
    unused: float
    steal: float
    client: float
    broker: float
    workers: float


def take_reading(brokers: Iterable[int], workers: Iterable[int]) -> Reading:
    """Read the clocks. `brokers` and `workers` are processes, each the leader of a session. This process is the client;
    its child processes count as workers, too."""
    with open("/proc/stat") as file:
        _user, _nice, _system, idle, iowait, _irq, _softirq, steal = map(int, file.readline().split()[1:9])
    at = time.monotonic()
    used = _used_by_root({*brokers, *workers, os.getpid()})
    client = time.process_time()
    return Reading(
        at=at,
        unused=(idle + iowait + steal) * _TICK,
        steal=steal * _TICK,
        client=client,
        broker=sum(used[each] for each in brokers),
        workers=sum(used[each] for each in (*workers, os.getpid())),
    )


def foreign_cores(before: Reading, after: Reading) -> float:
    """Return the CPU cores that other processes used between two readings."""
    seconds = after.at - before.at
    ours = after.client - before.client + after.broker - before.broker + after.workers - before.workers
    return (_CORES * seconds - (after.unused - before.unused) - ours) / seconds


def _used_by_root(roots: set[int]) -> dict[int, float]:
    """Return the CPU seconds of these processes and of those that they have started, with ended ones, without those of
    this process itself."""
    found: dict[int, tuple[int, int, float]] = {}  # parent, session, seconds
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # the process has just ended
                continue
            found[int(entry)] = int(fields[1]), int(fields[3]), sum(map(int, fields[11:15])) * _TICK
    used = dict.fromkeys(roots, 0.0)
    for process, (_parent, session, seconds) in found.items():
        root = process
        while root not in roots and root in found:
            root = found[root][0]
        root = root if root in roots else session
        if root in roots and process != os.getpid():
            used[root] += seconds
    return used
