"""Clients that reconnect: every job ends for them exactly once, and with one attempt no job runs twice.

Two hundred simulations, the same in every run, and one run for every position at which a connection can be cut; see
native_scenario.py.

    SIM_SEEDS=5000 python -m pytest tests/sim -k native_seeds      more of them
    NATIVE_SEED=123 python -m pytest tests/sim -k native_one_seed  only this one, with the end of its trace
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import process_time

import pytest

from sim.native_oracle import RARE, WatchedNative
from sim.native_planted import BUGS
from sim.native_scenario import Plan, draw, run, sweep, total
from sim.scenario import Report, SeedFailed
from sim.test_sim import no_longer_than

SEEDS = int(os.environ.get("SIM_SEEDS", "200"))
MOST_SEEDS = 200  # to look for a planted bug in
TESTS = Path(__file__).parent.parent


@pytest.mark.timeout(120 + SEEDS)
def test_native_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is ever wrong, and every rare way was gone at least once."""
    begin = process_time()
    seeds, events, hits = total(live(draw(seed)) for seed in range(SEEDS))
    seconds = process_time() - begin
    with capsys.disabled():
        print(f" {seeds} seeds, {events} events, {hits['done']} results, {seconds:.1f} s of CPU", end="")
    never = [way for way in RARE if not hits[way]]
    assert not never or SEEDS < 200, f"no seed went these ways: {', '.join(never)}"


if "NATIVE_SEED" in os.environ:

    def test_native_one_seed() -> None:
        live(draw(int(os.environ["NATIVE_SEED"])), tail=400)


def test_cut_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """At each boundary and within each message, each way, and the next connection at each boundary: four jobs done."""
    runs, events, hits = total(sweep())
    with capsys.disabled():
        print(f" {runs} runs, {events} events", end="")
    assert hits["done"] == 4 * runs
    for way in ("cut at a boundary", "cut within a message", "missing and sent again", "outcomes told again"):
        assert hits[way], way


@pytest.mark.parametrize(("name", "session", "letters"), BUGS, ids=[name for name, _, _ in BUGS])
def test_planted_native_bug_is_found(
    name: str, session: type[WatchedNative], letters: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(MOST_SEEDS):
        try:
            live(draw(seed), session)
        except SeedFailed as failed:
            if str(failed.__cause__).startswith(letters):
                with capsys.disabled():
                    print(f" {name}: seed {seed}", end="")
                return
    pytest.fail(f"{name}: not found in {MOST_SEEDS} seeds")


def test_same_native_seed_same_story() -> None:
    """I15: with any hashes of strings in this process."""
    seeds = (3, 4, 5)
    here = "".join(f"{seed} {report.events} {report.trace}\n" for seed in seeds for report in [live(draw(seed))])
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "sim.native_scenario", *map(str, seeds)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, timeout=60)
        assert done.stdout == here, done.stderr


def test_another_native_seed_is_another_story() -> None:
    assert len({live(draw(seed)).trace for seed in range(10)}) == 10


def live(plan: Plan, session: type[WatchedNative] = WatchedNative, tail: int = 60) -> Report:
    with no_longer_than(20, plan.seed):
        return run(plan, session, tail)
