"""Measures all systems, interleaved, and repeats disturbed runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.compare import MOST_RETRIES, Plan
from bench.measure import NotMeasured
from bench.queues.drive import QueueRun
from bench.queues.home import find_redis, install
from bench.queues.running import Effort, measure
from bench.queues.systems import System

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Medians over the clean runs, or over all runs if none is clean; then `clean` is 0."""

    rate: float
    p50_us: float
    p99_us: float
    client_us: float
    broker_us: float
    workers_us: float
    clean: int
    runs: int


@dataclass(slots=True)
class Standing:
    """The figures of one system, or the reason why it was not measured."""

    system: System
    runs: list[QueueRun] = field(default_factory=list)
    attempts: list[QueueRun] = field(default_factory=list)
    skipped: str = ""

    @property
    def figures(self) -> QueueFigures:
        """Return the figures of a measured system."""
        clean = [run for run in self.runs if run.is_clean]
        counted = clean or self.runs
        return QueueFigures(
            rate=median(run.rate for run in counted),
            p50_us=median(run.p50_us for run in counted),
            p99_us=median(run.p99_us for run in counted),
            client_us=median(run.client_us for run in counted),
            broker_us=median(run.broker_us for run in counted),
            workers_us=median(run.workers_us for run in counted),
            clean=len(clean),
            runs=len(self.runs),
        )


def compare_queues(systems: Sequence[System], effort: Effort, plan: Plan, rounds: int, tell: Tell) -> list[Standing]:
    """Measure each system, round by round. A system that is missing or fails is left out from then on."""
    standings = [Standing(system) for system in systems]
    for standing in standings:
        try:
            _make_ready(standing.system)
        except NotMeasured as problem:
            standing.skipped = str(problem)
    for number in range(1, rounds + 1):
        for standing in standings:
            if not standing.skipped:
                try:
                    attempts = _until_clean(standing.system, effort, plan)
                except NotMeasured as problem:
                    standing.skipped = str(problem)
                    continue
                standing.attempts += attempts
                standing.runs.append(min(attempts, key=lambda run: run.dirt))
                tell(f"round {number}/{rounds}  {_progress(standing, len(attempts))}")
    return standings


def _make_ready(system: System) -> None:
    if system.requirements:
        install(system.short_name, system.requirements)
    if system.uses_redis:
        find_redis()


def _until_clean(system: System, effort: Effort, plan: Plan) -> list[QueueRun]:
    attempts = [measure(system, effort)]
    while not attempts[-1].is_clean and len(attempts) <= MOST_RETRIES and plan.retry_seconds > 0:
        start = time.monotonic()
        attempts.append(measure(system, effort))
        plan.retry_seconds -= time.monotonic() - start
    return attempts


def _progress(standing: Standing, attempts: int) -> str:
    run = standing.runs[-1]
    cleanliness = "clean" if run.is_clean else "NOT CLEAN"
    why = f"foreign {run.foreign_cores:.2f}, steal {run.steal_cores:.2f}, attempts {attempts}"
    return f"{standing.system.name:<25}  {run.rate:>7,.0f} jobs/s  p50 {run.p50_us:>7,.0f} µs  {cleanliness} ({why})"
