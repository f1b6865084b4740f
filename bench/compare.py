"""Runs the same load through several brokers, interleaved, and repeats disturbed runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.brokers import Kind, running
from bench.generator import Generator, Shape, run_load
from bench.measure import Figures, Run, figures_of

MOST_RETRIES = 2

ECHO_SHAPES = tuple(Shape(workers, window, 100) for workers in (4, 64) for window in (1, 100))
LARGE_SHAPES = (Shape(workers=4, window=8, size=1 << 20),)
NATIVE_SHAPES = (Shape(workers=4, window=1, size=100), Shape(workers=4, window=100, size=100))
MEMODB_SHAPES = tuple(Shape(64, 100, 100, is_shared) for is_shared in (False, True))
HTTP_SHAPES = (Shape(workers=4, window=32, size=100),)
CALLED_BACK_SHAPE = Shape(workers=16, window=32, size=100)
MEMODB_LARGE_SHAPES = (Shape(workers=4, window=4, size=1 << 20),)

Tell = Callable[[str], None]


@dataclass(slots=True)
class Plan:
    """Duration of the measurement, and the seconds left for repeating disturbed runs, over all scenarios."""

    seconds: float
    warmup: float
    retry_seconds: float


@dataclass(slots=True)
class Comparison:
    """The runs of one shape by broker name. `runs` are those that count, `attempts` all that were measured."""

    shape: Shape
    target: float | None
    runs: dict[str, list[Run]] = field(default_factory=dict)
    attempts: dict[str, list[Run]] = field(default_factory=dict)

    def figures(self, name: str) -> Figures:
        """Return the medians of one broker."""
        return figures_of(self.runs[name])

    @property
    def is_clean(self) -> bool:
        """Return whether every broker has a clean run behind its medians; only then the ratio is meaningful."""
        return all(self.figures(name).clean for name in self.runs)

    def cpu_ratio(self, name: str, ceiling: str) -> float:
        """Return the CPU per job of one broker, in multiples of another's."""
        return self.figures(name).broker_us / max(self.figures(ceiling).broker_us, 1e-9)


def compare(
    shapes: Sequence[Shape],
    targets: dict[Shape, float],
    kinds: Sequence[Kind],
    generator: Generator,
    plan: Plan,
    rounds: int,
    tell: Tell,
) -> list[Comparison]:
    """Measure each shape through each broker, round by round, so that a slow minute of the machine affects all
    alike."""
    comparisons = [Comparison(shape, targets.get(shape)) for shape in shapes]
    for number in range(1, rounds + 1):
        for comparison in comparisons:
            for kind in kinds:
                attempts = _until_clean(kind, comparison.shape, generator, plan)
                best = min(attempts, key=lambda run: run.dirt)
                comparison.attempts.setdefault(kind.name, []).extend(attempts)
                comparison.runs.setdefault(kind.name, []).append(best)
                tell(f"round {number}/{rounds}  {_progress(comparison.shape, kind, best, len(attempts))}")
    return comparisons


def _until_clean(kind: Kind, shape: Shape, generator: Generator, plan: Plan) -> list[Run]:
    attempts = [_once(kind, shape, generator, plan)]
    while not attempts[-1].is_clean and len(attempts) <= MOST_RETRIES and plan.retry_seconds > 0:
        start = time.monotonic()
        attempts.append(_once(kind, shape, generator, plan))
        plan.retry_seconds -= time.monotonic() - start
    return attempts


def _once(kind: Kind, shape: Shape, generator: Generator, plan: Plan) -> Run:
    with running(kind) as broker:
        return run_load(generator, broker, shape, plan.warmup, plan.seconds)


def _progress(shape: Shape, kind: Kind, run: Run, attempts: int) -> str:
    name = f"{shape.size:>7} B  {shape.workers:>2} workers  {shape.window:>3} in flight  {kind.name:<12}"
    speed = f"{run.rate:>9,.0f} jobs/s  {run.broker_us:>8.2f} µs CPU/job"
    cleanliness = "clean" if run.is_clean else "NOT CLEAN"
    why = f"foreign {run.foreign_cores:.2f}, steal {run.steal_cores:.2f}, attempts {attempts}"
    return f"{name}  {speed}  {cleanliness} ({why})"
