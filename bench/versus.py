"""Compares two builds of Dragoman: the same load through both, in interleaved pairs.

    python -m bench.versus OTHER [--pairs 10] [--seconds 2] [--only native pingpong ...]

OTHER is the program `dragoman` of the other build, such as `../old/.venv/bin/dragoman`. Each pair gives one ratio, this
build's figure by the other's; the table has their median and their spread (the middle half, and all).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles

from bench.brokers import (
    DRAGOMAN_COMMAND,
    HTTP_COMMAND,
    MEMODB_COMMAND,
    NATIVE_COMMAND,
    PRODUCT,
    Kind,
    running,
)
from bench.compare import HTTP_SHAPES, MEMODB_SHAPES, NATIVE_SHAPES
from bench.generator import (
    HTTP_GENERATOR,
    Generator,
    Shape,
    find_generator,
    find_sp_generator,
    find_submit_generator,
    run_load,
)
from bench.listeners import DURABLE_SHAPES, LISTENERS
from bench.measure import NotMeasured, Run

WARMUP = 0.5
MAJORDOMO_COMMAND = ("{dragoman}", "serve", "majordomo+tcp://127.0.0.1:{frontend}", "--data", "memory")
CROWD = Shape(workers=64, window=100, size=100)
(NATIVE_LISTENER, _), (HTTP_LISTENER, _) = LISTENERS


@dataclass(frozen=True, slots=True)
class Contest:
    """One load, and the compared figure: broker CPU per job, or jobs a second."""

    kind: Kind
    shape: Shape
    generator: Callable[[], Generator]
    figure: str = "broker_us"


CONTESTS = {
    "native": Contest(Kind("native", "native", NATIVE_COMMAND), NATIVE_SHAPES[-1], find_generator),
    "pingpong": Contest(Kind("pingpong", "pingpong", DRAGOMAN_COMMAND), CROWD, find_generator),
    "majordomo": Contest(Kind("majordomo", "majordomo", MAJORDOMO_COMMAND), CROWD, find_generator),
    "memodb": Contest(Kind("memodb", "memodb", MEMODB_COMMAND), MEMODB_SHAPES[0], find_sp_generator),
    "http": Contest(Kind("http", "http", HTTP_COMMAND), HTTP_SHAPES[0], lambda: HTTP_GENERATOR),
    "background": Contest(NATIVE_LISTENER, DURABLE_SHAPES[-1], find_submit_generator, "rate"),
    "background-1": Contest(NATIVE_LISTENER, DURABLE_SHAPES[0], find_submit_generator, "rate"),
    "background-http": Contest(HTTP_LISTENER, DURABLE_SHAPES[-1], find_submit_generator, "rate"),
}
NAMES = {"broker_us": "CPU µs a job", "rate": "jobs a second"}


def main() -> int:
    options = _options()
    for name in options.only or CONTESTS:
        contest = CONTESTS[name]
        try:
            pairs = [_pair(contest, options, number) for number in range(options.pairs)]
        except NotMeasured as problem:
            print(f"{name}: NOT MEASURED: {problem}", flush=True)
            continue
        print(_row(name, contest, pairs), flush=True)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps({"name": name, "figure": contest.figure, "pairs": pairs}) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.versus", description="Compare two builds of Dragoman.")
    parser.add_argument("other", type=Path, help="the program `dragoman` of the other build")
    parser.add_argument("--pairs", type=int, default=10, help="interleaved pairs of runs (10)")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured seconds of each run (2)")
    parser.add_argument("--only", nargs="+", choices=list(CONTESTS), metavar="NAME", help=" ".join(CONTESTS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the figures of every pair to FILE")
    options = parser.parse_args()
    if options.pairs < 2 or options.seconds <= 0:
        parser.error("--pairs must be at least 2 and --seconds over 0")
    return options


def _pair(contest: Contest, options: argparse.Namespace, number: int) -> tuple[float, float]:
    """Return the figures of the other build and of this one. The order of the two alternates."""
    programs = (options.other.resolve(), PRODUCT)
    order = (0, 1) if number % 2 == 0 else (1, 0)
    figures = [0.0, 0.0]
    for which in order:
        figures[which] = getattr(_once(contest, programs[which], options.seconds), contest.figure)
    print(f"  {contest.kind.name}: {figures[0]:,.2f} {figures[1]:,.2f}", file=sys.stderr, flush=True)
    return figures[0], figures[1]


def _once(contest: Contest, program: Path, seconds: float) -> Run:
    command = tuple(part.replace("{dragoman}", str(program)) for part in contest.kind.command)
    with running(replace(contest.kind, command=command)) as broker:
        return run_load(contest.generator(), broker, contest.shape, WARMUP, seconds)


def _row(name: str, contest: Contest, pairs: list[tuple[float, float]]) -> str:
    ratios = sorted(ours / other for other, ours in pairs)
    low, _, high = quantiles(ratios, n=4)
    other, ours = median(each[0] for each in pairs), median(each[1] for each in pairs)
    return (
        f"{name:16} {NAMES[contest.figure]:14} other {other:>10,.2f}  this {ours:>10,.2f}  "
        f"ratio {median(ratios):.3f}  half {low:.3f}-{high:.3f}  all {ratios[0]:.3f}-{ratios[-1]:.3f}"
    )


if __name__ == "__main__":
    sys.exit(main())
