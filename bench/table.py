"""The tables that are printed: plain text, aligned, with ratios and whether each target was reached."""

from __future__ import annotations

from collections.abc import Sequence

from bench.compare import Comparison
from bench.core import CoreCost, growth
from bench.idle import IdleCost
from bench.measure import Figures

CEILING = "zmq.proxy"
SUBJECT = "dragoman"
MEMORY_TARGET_KIB = 8.0
FLAT_TARGET = 1.5  # a large crowd misses the processor's caches more often; it must not cost more than that

Row = Sequence[str]


def comparison_table(title: str, comparisons: Sequence[Comparison]) -> str:
    """Jobs per second, latencies and CPU per job of both brokers side by side; ratios are Dragoman / zmq.proxy."""
    pairs = [(each.figures(CEILING), each.figures(SUBJECT)) for each in comparisons]
    names = ("proxy", "dragoman")
    load = [("workers", "in flight"), *((str(each.shape.workers), str(each.shape.window)) for each in comparisons)]
    rate = [(*names, "ratio"), *map(_rate_cells, pairs)]
    p50 = [names, *((f"{proxy.p50_us:,.0f}", f"{ours.p50_us:,.0f}") for proxy, ours in pairs)]
    p99 = [names, *((f"{proxy.p99_us:,.0f}", f"{ours.p99_us:,.0f}") for proxy, ours in pairs)]
    cpu = [(*names, "ratio", ""), *map(_cpu_cells, comparisons)]
    clean = [names, *((_clean_cell(proxy), _clean_cell(ours)) for proxy, ours in pairs)]
    lines = beside(
        block("", load),
        block("jobs/s", rate),
        block("p50 µs", p50),
        block("p99 µs", p99),
        block("broker CPU µs/job", cpu),
        block("clean runs", clean),
    )
    return "\n".join([title, *lines])


def _rate_cells(pair: tuple[Figures, Figures]) -> Row:
    proxy, ours = pair
    return f"{proxy.rate:,.0f}", f"{ours.rate:,.0f}", f"{ours.rate / max(proxy.rate, 1e-9):.2f}"


def _cpu_cells(comparison: Comparison) -> Row:
    ratio = comparison.cpu_ratio(SUBJECT, CEILING)
    return (
        f"{comparison.figures(CEILING).broker_us:,.2f}",
        f"{comparison.figures(SUBJECT).broker_us:,.2f}",
        f"{ratio:.2f}",
        verdict(ratio, comparison.target, is_clean=comparison.is_clean),
    )


def _clean_cell(figures: Figures) -> str:
    """How many of the runs count; with none of them clean the figures are over all, and this says it loudly."""
    return f"{figures.clean}/{figures.runs}" if figures.clean else "NONE"


def memory_table(costs: Sequence[IdleCost]) -> str:
    """Memory per idle worker connection; the target is Dragoman's."""
    title = f"memory per idle worker connection (growth of RSS from {costs[0].first} workers on)"
    header = ("broker", "workers", "RSS MiB", "KiB/worker", "")
    rows = [
        (
            cost.name,
            f"{cost.workers:,}",
            f"{cost.rss_kib / 1024:.1f}",
            f"{cost.kib_per_worker:.2f}",
            verdict(cost.kib_per_worker, MEMORY_TARGET_KIB if cost.name == SUBJECT else None),
        )
        for cost in costs
    ]
    return "\n".join(block(title, [header, *rows]))


def core_table(costs: Sequence[CoreCost]) -> str:
    """CPU per job of the pure core in crowds of growing size; the last of a row is compared with its first."""
    lines = ["CPU per job of the pure core, without sockets"]
    for crowd in dict.fromkeys(cost.crowd for cost in costs):
        row = [cost for cost in costs if cost.crowd == crowd]
        ratio = growth(costs, crowd)
        header = (crowd, *(f"{cost.number:,}" for cost in row), "growth", "")
        figures = ("µs/job", *(f"{cost.us_per_job:.2f}" for cost in row), f"{ratio:.2f}", verdict(ratio, FLAT_TARGET))
        lines += _aligned([header, figures])
    return "\n".join(lines)


def verdict(value: float, target: float | None, *, is_clean: bool = True) -> str:
    """Whether a figure is within its target; nothing where there is none. Disturbed runs decide nothing."""
    if target is None:
        return ""
    answer = ("yes" if value <= target else "no") if is_clean else "NOT CLEAN"
    return f"target ≤ {target:.1f}: {answer}"


def block(title: str, rows: Sequence[Row]) -> list[str]:
    """A title over aligned rows."""
    return [title, *_aligned(rows)]


def beside(*blocks: list[str]) -> list[str]:
    """Blocks of equally many lines next to each other, with a rule between them."""
    widths = [max(map(len, lines)) for lines in blocks]
    return [
        " | ".join(line.ljust(width) for line, width in zip(lines, widths, strict=True)).rstrip()
        for lines in zip(*blocks, strict=True)
    ]


def _aligned(rows: Sequence[Row]) -> list[str]:
    """Columns as wide as they need be, all to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
