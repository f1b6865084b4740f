"""Background jobs beside a bare thread that writes the same rows, and a broker's start with a million of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from statistics import median

from bench.brokers import ROOT, chosen
from bench.measure import NotMeasured
from bench.table import block, verdict

CALLERS = (1, 100)
RATE_TARGET = 0.5  # fraction of the bare thread's rate
JOBS = 1_000_000
INDEXED_TARGET = 30.0  # seconds
MEMORY_TARGET = 1024.0  # MiB
CALL_TARGET = 2.0  # seconds
LONGEST = 600.0

Figures = dict[str, float]


def compare_stores(seconds: float, rounds: int, tell: Callable[[str], None]) -> dict[int, dict[str, list[Figures]]]:
    """Measure the store and the bare thread for this number of callers, alternating."""
    found: dict[int, dict[str, list[Figures]]] = {}
    for callers in CALLERS:
        runs = found[callers] = {"bare": [], "submits": []}
        for _ in range(rounds):
            for kind, figures in runs.items():
                figures.append(_run(kind, str(callers), str(seconds)))
                tell(f"store  {callers:>3} callers  {kind:<8} {figures[-1]['rate']:>9,.0f} jobs/s")
    return found


def measure_restart(quick: bool, tell: Callable[[str], None]) -> Figures:
    figures = _run("restart", str(JOBS // 10 if quick else JOBS))
    tell(f"restart  {figures['jobs']:,.0f} jobs  {figures['indexed']:.1f} s")
    return figures


def _run(*words: str) -> Figures:
    python = chosen().with_name("python")
    done = subprocess.run(
        [python, "-m", "bench.durable", *words], cwd=ROOT, capture_output=True, text=True, timeout=LONGEST
    )
    if done.returncode:
        raise NotMeasured(f"bench.durable {' '.join(words)} failed: {done.stderr[-500:]}")
    figures: Figures = json.loads(done.stdout)
    return figures


def store_table(found: dict[int, dict[str, list[Figures]]]) -> str:
    rows: list[Sequence[str]] = [("callers", "bare", "dragoman", "ratio", "", "bare", "dragoman", "jobs a commit")]
    for callers, runs in found.items():
        rate, cpu = ([median(each[name] for each in runs[kind]) for kind in runs] for name in ("rate", "us_per_job"))
        ratio = rate[1] / rate[0]
        rows.append(
            (
                str(callers),
                *(f"{each:,.0f}" for each in rate),
                f"{ratio:.2f}",
                verdict(ratio, RATE_TARGET, at_least=True),
                *(f"{each:.1f}" for each in cpu),
                f"{median(each['group'] for each in runs['submits']):.0f}",
            )
        )
    return "\n".join(block("durable submits of 512 bytes in one process: jobs/s, then CPU µs/job", rows))


def restart_table(figures: Figures) -> str:
    rows = [
        ("listening after", f"{figures['listening']:.2f} s", ""),
        ("first job out after", f"{figures['first_out']:.2f} s", verdict(figures["first_out"], 5.0)),
        ("all indexed after", f"{figures['indexed']:.1f} s", verdict(figures["indexed"], INDEXED_TARGET)),
        ("longest call meanwhile", f"{figures['longest_call']:.3f} s", verdict(figures["longest_call"], CALL_TARGET)),
        ("memory at most", f"{figures['rss_mib']:.0f} MiB", verdict(figures["rss_mib"], MEMORY_TARGET)),
    ]
    return "\n".join(block(f"start with {figures['jobs']:,.0f} waiting jobs of 512 bytes", rows))
