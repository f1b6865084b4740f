"""Formats the tables: plain text, aligned, with ratios and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.compare import Comparison
from bench.core import CoreCost, growth
from bench.idle import Growth
from bench.measure import Figures

CEILING = "zmq.proxy"
SUBJECT = "dragoman"
MEMORY_TARGET_KIB = 8.0
PARKED_TARGET_KIB = 2.0
FLAT_TARGET = 1.5  # a large crowd causes more cache misses; more than this factor is too much

Row = Sequence[str]


def comparison_table(
    title: str,
    comparisons: Sequence[Comparison],
    ceiling: str,
    rate_target: float | None = None,
    exchanges: int = 1,
) -> str:
    """Return jobs per second, latencies and CPU per job of both systems; ratios are Dragoman / the ceiling.

    `exchanges`: number of requests of a job on the wire, where the ceiling answers single requests. The target applies
    to the ratio to one request; the ratio to `exchanges` requests stands beside it.
    """
    pairs = [(each.figures(ceiling), each.figures(SUBJECT)) for each in comparisons]
    names = (ceiling.removeprefix("zmq."), SUBJECT)
    load = [("workers", "in flight", ""), *map(_load_cells, comparisons)]
    rate = [(*names, "ratio", ""), *(_rate_cells(each, ceiling, rate_target) for each in comparisons)]
    p50 = [names, *((f"{theirs.p50_us:,.0f}", f"{ours.p50_us:,.0f}") for theirs, ours in pairs)]
    p99 = [names, *((f"{theirs.p99_us:,.0f}", f"{ours.p99_us:,.0f}") for theirs, ours in pairs)]
    ratio = "ratio" if exchanges == 1 else f"ratio to 1, to {exchanges}"
    cpu = [(*names, ratio, ""), *(_cpu_cells(each, ceiling, exchanges) for each in comparisons)]
    clean = [names, *((_clean_cell(theirs), _clean_cell(ours)) for theirs, ours in pairs)]
    lines = beside(
        block("", load),
        block("jobs/s", rate),
        block("p50 µs", p50),
        block("p99 µs", p99),
        block("broker CPU µs/job", cpu),
        block("clean runs", clean),
    )
    return "\n".join([title, *lines])


def called_back_table(title: str, comparison: Comparison, exchanges: Mapping[str, tuple[int, int]]) -> str:
    """Return a row for each of several dialects; ratios are to the first. `exchanges`: messages and connections of a
    job."""
    first = next(iter(exchanges))
    header = ("workers", "messages/job", "connections/job", "jobs/s", "p50 µs", "p99 µs", "broker CPU µs/job", "ratio")
    rows = [(*header, "load CPU µs/job", "clean runs")]
    for name, (messages, connections) in exchanges.items():
        figures = comparison.figures(name)
        rows.append(
            (
                name,
                str(messages),
                str(connections),
                f"{figures.rate:,.0f}",
                f"{figures.p50_us:,.0f}",
                f"{figures.p99_us:,.0f}",
                f"{figures.broker_us:,.2f}",
                f"{comparison.cpu_ratio(name, first):.2f}",
                f"{figures.load_us:,.2f}",
                _clean_cell(figures),
            )
        )
    return "\n".join(block(title, rows))


def _load_cells(comparison: Comparison) -> Row:
    shape = comparison.shape
    return str(shape.workers), str(shape.window), "shared connections" if shape.is_shared else ""


def _rate_cells(comparison: Comparison, ceiling: str, target: float | None) -> Row:
    theirs, ours = comparison.figures(ceiling).rate, comparison.figures(SUBJECT).rate
    ratio = ours / max(theirs, 1e-9)
    goal = verdict(ratio, target, is_clean=comparison.is_clean, at_least=True)
    return f"{theirs:,.0f}", f"{ours:,.0f}", f"{ratio:.2f}", goal


def _cpu_cells(comparison: Comparison, ceiling: str, exchanges: int) -> Row:
    ratio = comparison.cpu_ratio(SUBJECT, ceiling)
    return (
        f"{comparison.figures(ceiling).broker_us:,.2f}",
        f"{comparison.figures(SUBJECT).broker_us:,.2f}",
        f"{ratio:.2f}" if exchanges == 1 else f"{ratio:.2f}, {ratio / exchanges:.2f}",
        verdict(ratio, comparison.target, is_clean=comparison.is_clean),
    )


def _clean_cell(figures: Figures) -> str:
    """Return the number of runs that count; if none is clean, the figures are over all runs, with a clear mark."""
    return f"{figures.clean}/{figures.runs}" if figures.clean else "NONE"


def memory_table(costs: Sequence[Growth]) -> str:
    """Return memory per idle worker connection; the target is Dragoman's."""
    goals = [MEMORY_TARGET_KIB if cost.name == SUBJECT else None for cost in costs]
    return _growth_table("memory per idle worker connection", "broker", costs, goals)


def parked_table(costs: Sequence[Growth]) -> str:
    """Return memory per parked request of MemoDB."""
    return _growth_table("MemoDB: memory per parked request", "whose", costs, [PARKED_TARGET_KIB] * len(costs))


def _growth_table(title: str, what: str, costs: Sequence[Growth], goals: Sequence[float | None]) -> str:
    header = (what, "number", "RSS MiB", "KiB each", "")
    rows = [
        (
            cost.name,
            f"{cost.number:,}",
            f"{cost.rss_kib / 1024:.1f}",
            f"{cost.kib_each:.2f}",
            verdict(cost.kib_each, goal),
        )
        for cost, goal in zip(costs, goals, strict=True)
    ]
    return "\n".join(block(f"{title} (growth of RSS from {costs[0].first:,} on)", [header, *rows]))


def core_table(costs: Sequence[CoreCost]) -> str:
    """Return CPU per job of the pure core in crowds of growing size; the last of a row is compared with the first."""
    lines = ["CPU per job of the pure core, interpreted, without sockets"]
    for crowd in dict.fromkeys(cost.crowd for cost in costs):
        row = [cost for cost in costs if cost.crowd == crowd]
        ratio = growth(costs, crowd)
        header = (crowd, *(f"{cost.number:,}" for cost in row), "growth", "")
        figures = ("µs/job", *(f"{cost.us_per_job:.2f}" for cost in row), f"{ratio:.2f}", verdict(ratio, FLAT_TARGET))
        lines += _aligned([header, figures])
    return "\n".join(lines)


def verdict(value: float, target: float | None, *, is_clean: bool = True, at_least: bool = False) -> str:
    """Return whether a figure meets its target; empty without a target. Disturbed runs decide nothing."""
    if target is None:
        return ""
    is_reached = value >= target if at_least else value <= target
    answer = ("yes" if is_reached else "no") if is_clean else "NOT CLEAN"
    shown = f"{target:.2f}".removesuffix("0")
    return f"target {'≥' if at_least else '≤'} {shown}: {answer}"


def block(title: str, rows: Sequence[Row]) -> list[str]:
    """Return a title over aligned rows."""
    return [title, *_aligned(rows)]


def beside(*blocks: list[str]) -> list[str]:
    """Return blocks with equal numbers of lines side by side, with a rule between them."""
    widths = [max(map(len, lines)) for lines in blocks]
    return [
        " | ".join(line.ljust(width) for line, width in zip(lines, widths, strict=True)).rstrip()
        for lines in zip(*blocks, strict=True)
    ]


def _aligned(rows: Sequence[Row]) -> list[str]:
    """Return right-aligned columns of minimal width."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
