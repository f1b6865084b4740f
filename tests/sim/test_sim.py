"""Two hundred simulations, the same in every run; see scenario.py.

SIM_SEEDS=5000 python -m pytest tests/sim -k seeds      more of them
SIM_SEED=123 python -m pytest tests/sim -k one_seed     only this one, with the end of its trace
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time

import pytest

from sim.broker_setup import Kinds
from sim.oracle import RARE
from sim.planted import BUGS
from sim.scenario import Plan, Report, SeedFailed, draw, long_times, run

SEEDS = int(os.environ.get("SIM_SEEDS", "200"))
TESTS = Path(__file__).parent.parent


@pytest.mark.timeout(120 + SEEDS)
def test_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is ever wrong, and every rare way was gone at least once."""
    hits: Counter[str] = Counter()
    events = 0
    begin = process_time()
    for seed in range(SEEDS):
        report = live(draw(seed))
        events += report.events
        hits += report.hits
    seconds = process_time() - begin
    with capsys.disabled():
        print(
            f" {SEEDS} seeds, {events} events, {SEEDS / seconds:.0f} seeds/s, {events / seconds:.0f} events/s", end=""
        )
    never = [way for way in RARE if not hits[way]]
    assert not never or SEEDS < 200, f"no seed went these ways: {', '.join(never)}"


if "SIM_SEED" in os.environ:

    def test_one_seed() -> None:
        live(draw(int(os.environ["SIM_SEED"])), tail=400)


@pytest.mark.parametrize(("name", "kinds", "letter"), BUGS, ids=[name for name, _, _ in BUGS])
def test_planted_bug_is_found(name: str, kinds: Kinds, letter: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By its effect on callers, not only by an inconsistency in the records."""
    for seed in range(200):
        try:
            live(draw(seed), kinds)
        except SeedFailed as failed:
            if str(failed.__cause__).startswith(letter):
                with capsys.disabled():
                    print(f" {name}: seed {seed}", end="")
                return
    pytest.fail(f"{name}: not found in 200 seeds")


def test_same_seed_same_story() -> None:
    """I15: with any hashes of strings in this process."""
    seeds = (3, 4, 5)
    here = "".join(f"{seed} {report.events} {report.trace}\n" for seed in seeds for report in [live(draw(seed))])
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "sim.scenario", *map(str, seeds)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, timeout=60)
        assert done.stdout == here, done.stderr


def test_another_seed_is_another_story() -> None:
    assert len({live(draw(seed)).trace for seed in range(10)}) == 10


def test_long_times() -> None:
    """The defaults of the dialect: ten minutes for a job, an hour until a stuck worker is removed."""
    reports = [live(long_times(seed)) for seed in range(4)]
    hits = sum((report.hits for report in reports), Counter[str]())
    assert hits["answer timed out in the run"]
    assert hits["stuck closed at the limit"]
    assert max(report.seconds for report in reports) > 3600


def live(plan: Plan, kinds: Kinds | None = None, tail: int = 60) -> Report:
    with no_longer_than(20, plan.seed):
        return run(plan, kinds, tail)


@contextmanager
def no_longer_than(seconds: int, seed: int) -> Iterator[None]:
    """A loop without an end is a finding, too: name its seed. Counts the process's own time, not that of others."""

    def hang(number: int, frame: object) -> None:
        raise AssertionError(f"seed {seed} hangs: it took more than {seconds} s")

    former = signal.signal(signal.SIGPROF, hang)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
