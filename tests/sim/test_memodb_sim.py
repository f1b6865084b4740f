"""NNG repeats requests by itself: one job and not two, the last reply byte for byte, never another job's result.

Two hundred simulations, the same in every run, and one run for every position at which a connection can be cut; see
memodb_scenario.py.

    SIM_SEEDS=5000 python -m pytest tests/sim -k memodb_seeds      more of them
    MEMODB_SEED=123 python -m pytest tests/sim -k memodb_one_seed  only this one, with the end of its trace
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import process_time

import pytest

from sim.memodb_oracle import RARE, WatchedMemoDb
from sim.memodb_planted import BUGS
from sim.memodb_scenario import SETTINGS, Plan, Setting, draw, overtaken, run, sweep, sweep_twice, total
from sim.scenario import Report, SeedFailed
from sim.test_sim import no_longer_than

SEEDS = int(os.environ.get("SIM_SEEDS", "200"))
TESTS = Path(__file__).parent.parent


@pytest.mark.timeout(120 + SEEDS)
def test_memodb_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is ever wrong, and every rare way was gone at least once."""
    begin = process_time()
    seeds, events, hits = total(live(draw(seed)) for seed in range(SEEDS))
    seconds = process_time() - begin
    with capsys.disabled():
        print(f" {seeds} seeds, {events} events, {hits['answers']} answers, {seconds:.1f} s of CPU", end="")
    never = [way for way in RARE if not hits[way]]
    assert not never or SEEDS < 200, f"no seed went these ways: {', '.join(never)}"


if "MEMODB_SEED" in os.environ:

    def test_memodb_one_seed() -> None:
        live(draw(int(os.environ["MEMODB_SEED"])), tail=400)


def test_memodb_overtaken() -> None:
    """A worker's earlier request that arrives after its later ones is not taken for a new one."""
    for seed in range(SEEDS // 4):
        live(overtaken(seed))


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_cut_everywhere(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    """At each boundary and within each message, each way: three jobs, three runs, three right answers."""
    runs, events, hits = total(sweep(setting))
    with capsys.disabled():
        print(f" {runs} runs, {events} events", end="")
    assert hits["answers"] == 3 * runs
    for way in ("cut at a boundary", "cut within a message", "requests sent again", "JOB said again"):
        assert hits[way], way


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_cut_twice(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    """At each boundary, and the connection that follows at each of its boundaries."""
    runs, events, hits = total(sweep_twice(setting))
    with capsys.disabled():
        print(f" {runs} runs, {events} events", end="")
    assert hits["answers"] == 3 * runs


@pytest.mark.parametrize(("name", "session", "letters"), BUGS, ids=[name for name, _, _ in BUGS])
def test_planted_memodb_bug_is_found(
    name: str, session: type[WatchedMemoDb], letters: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(200):
        try:
            live(draw(seed), session)
        except SeedFailed as failed:
            if str(failed.__cause__).startswith(letters):
                with capsys.disabled():
                    print(f" {name}: seed {seed}", end="")
                return
    pytest.fail(f"{name}: not found in 200 seeds")


def test_same_memodb_seed_same_story() -> None:
    """I15: with any hashes of strings in this process."""
    seeds = (3, 4, 5)
    here = "".join(f"{seed} {report.events} {report.trace}\n" for seed in seeds for report in [live(draw(seed))])
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "sim.memodb_scenario", *map(str, seeds)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, timeout=60)
        assert done.stdout == here, done.stderr


def test_another_memodb_seed_is_another_story() -> None:
    assert len({live(draw(seed)).trace for seed in range(10)}) == 10


def live(plan: Plan, session: type[WatchedMemoDb] = WatchedMemoDb, tail: int = 60) -> Report:
    with no_longer_than(20, plan.seed):
        return run(plan, session, tail)
