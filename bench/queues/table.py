"""Table of the task queues, with targets."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.queues.compare import Standing
from bench.queues.systems import DASK, HEADLINE, ON_REDIS, PAIRS, POOL, PROCESSES, WINDOW
from bench.table import block, verdict

REDIS_TARGET = 10.0
DASK_TARGET = 3.0
CALL_TARGET = 1.0
TYPED_TARGET = 1.3


def queues_table(standings: Sequence[Standing]) -> str:
    """Return jobs a second, single calls and CPU of each system; then the targets and the missing systems."""
    return _table("task queues", standings, _verdicts([each for each in standings if each.runs]))


def tasks_table(standings: Sequence[Standing]) -> str:
    """Return the same of Dragoman with bytes and with typed tasks; then the ratio of their CPU."""
    return _table("typed tasks beside bytes", standings, _typed_verdicts(standings))


def _table(name: str, standings: Sequence[Standing], verdicts: Sequence[str]) -> str:
    measured = [each for each in standings if each.runs]
    header = ("", "jobs/s", "p50 µs", "p99 µs", "client", "broker", "workers", "clean runs")
    rows = [header, *map(_cells, measured)]
    title = (
        f"{name}: echo, jobs of 100 bytes, {PROCESSES} worker processes; jobs/s with {WINDOW} in flight, "
        "p50 and p99 of calls one after another, CPU µs a job of client, broker and workers"
    )
    skipped = [f"{each.system.name}: NOT MEASURED: {each.skipped}" for each in standings if not each.runs]
    broken = [f"{each.system.name}: FAILED LATER: {each.skipped}" for each in measured if each.skipped]
    return "\n".join([*block(title, rows), *verdicts, *skipped, *broken])


def _cells(standing: Standing) -> Sequence[str]:
    figures = standing.figures
    return (
        standing.system.name,
        f"{figures.rate:,.0f}",
        f"{figures.p50_us:,.0f}",
        f"{figures.p99_us:,.0f}",
        f"{figures.client_us:,.1f}",
        f"{figures.broker_us:,.1f}",
        f"{figures.workers_us:,.1f}",
        f"{figures.clean}/{figures.runs}" if figures.clean else "NONE",
    )


def _verdicts(measured: Sequence[Standing]) -> list[str]:
    by_name = {each.system.name: each for each in measured}
    ours = by_name.get(HEADLINE.name)
    if ours is None:
        return [f"{HEADLINE.name} was not measured: nothing is decided"]
    on_redis = [by_name[each.name] for each in ON_REDIS if each.name in by_name]
    dask = [by_name[DASK.name]] if DASK.name in by_name else []
    lines = [
        *_faster(ours, "the fastest on Redis", on_redis, REDIS_TARGET),
        *_faster(ours, "Dask", dask, DASK_TARGET),
        *_sooner(ours, "the soonest of all with a broker", [*on_redis, *dask], CALL_TARGET),
    ]
    if POOL.name in by_name:
        lines += _sooner(ours, "pipes without a broker", [by_name[POOL.name]], None)
    return lines


def _typed_verdicts(standings: Sequence[Standing]) -> list[str]:
    """Return the ratio of each pair: CPU of client and workers, typed beside bytes. It is the median over the rounds,
    because both runs of a round have almost the same load beside them."""
    by_name = {each.system.name: each for each in standings}
    lines = []
    for pair in PAIRS:
        plain, typed = by_name[pair.plain.name], by_name[pair.typed.name]
        ratios = [
            (its.client_us + its.workers_us) / (bare.client_us + bare.workers_us)
            for bare, its in zip(plain.runs, typed.runs, strict=False)
        ]
        if ratios:
            middle = median(ratios)
            goal = verdict(middle, TYPED_TARGET, is_clean=_is_clean(plain, typed))
            spread = f"{min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds"
            lines.append(f"{pair.typed.name}, CPU of client and workers beside bytes: {middle:.2f} ({spread})  {goal}")
    return lines


def _faster(ours: Standing, who: str, theirs: Sequence[Standing], target: float) -> list[str]:
    if not theirs:
        return []
    best = max(theirs, key=lambda each: each.figures.rate)
    ratio = ours.figures.rate / best.figures.rate
    goal = verdict(ratio, target, is_clean=_is_clean(ours, *theirs), at_least=True)
    return [f"{HEADLINE.name}, jobs/s beside {who} ({best.system.name}): {ratio:.1f}  {goal}"]


def _sooner(ours: Standing, who: str, theirs: Sequence[Standing], target: float | None) -> list[str]:
    if not theirs:
        return []
    best = min(theirs, key=lambda each: each.figures.p50_us)
    ratio = ours.figures.p50_us / best.figures.p50_us
    goal = verdict(ratio, target, is_clean=_is_clean(ours, *theirs))
    return [f"{HEADLINE.name}, p50 of a call beside {who} ({best.system.name}): {ratio:.2f}  {goal}".rstrip()]


def _is_clean(*standings: Standing) -> bool:
    return all(each.figures.clean for each in standings)
