"""CPU time by role. A broker or its workers may be many processes, so each role is a session of its own."""

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
    """Read the clocks. `brokers` and `workers` are sessions. This process is the client; its child processes count as
    workers, too."""
    with open("/proc/stat") as file:
        _user, _nice, _system, idle, iowait, _irq, _softirq, steal = map(int, file.readline().split()[1:9])
    at = time.monotonic()
    used = _used_by_session()
    client = time.process_time()
    return Reading(
        at=at,
        unused=(idle + iowait + steal) * _TICK,
        steal=steal * _TICK,
        client=client,
        broker=sum(used.get(each, 0.0) for each in brokers),
        workers=sum(used.get(each, 0.0) for each in (*workers, os.getsid(0))),
    )


def foreign_cores(before: Reading, after: Reading) -> float:
    """Return the CPU cores that other processes used between two readings."""
    seconds = after.at - before.at
    ours = after.client - before.client + after.broker - before.broker + after.workers - before.workers
    return (_CORES * seconds - (after.unused - before.unused) - ours) / seconds


def _used_by_session() -> dict[int, float]:
    """Return the CPU seconds of all sessions, with those of ended child processes, without this process."""
    used: dict[int, float] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # the process has just ended
            continue
        session = int(fields[3])
        used[session] = used.get(session, 0.0) + sum(map(int, fields[11:15])) * _TICK
    return used
