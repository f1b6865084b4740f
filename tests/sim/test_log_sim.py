"""Shard logs on a model of NATS: what was acknowledged is never lost, and one broker at a time writes.

Forty simulations, the same in every run; see log_scenario.py.

    SIM_SEEDS=5000 python -m pytest tests/sim -k log_seeds      more of them
    LOG_SEED=123 python -m pytest tests/sim -k log_one_seed     only this one, with the end of its trace
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from time import process_time

import pytest

from sim.log_planted import BUGS
from sim.log_scenario import RARE, LogSeedFailed, Report, draw, run
from sim.test_sim import no_longer_than

SEEDS = int(os.environ.get("SIM_SEEDS", "40"))
MOST_SEEDS = 300  # to look for a planted bug in
TESTS = Path(__file__).parent.parent


@pytest.mark.timeout(240 + SEEDS)
def test_log_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is ever wrong, and every rare way was gone at least once."""
    begin = process_time()
    events, hits = 0, Counter[str]()
    for seed in range(SEEDS):
        report = live(seed)
        events += report.events
        hits += report.hits
    seconds = process_time() - begin
    with capsys.disabled():
        print(f" {SEEDS} seeds, {events} events, {hits['saved']} writes, {seconds:.1f} s of CPU", end="")
    never = [way for way in RARE if not hits[way]]
    assert not never or SEEDS < 40, f"no seed went these ways: {', '.join(never)}"


if "LOG_SEED" in os.environ:

    def test_log_one_seed() -> None:
        run(draw(int(os.environ["LOG_SEED"])), tail=400)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "planted", "letters", "first"), BUGS, ids=[name for name, *_ in BUGS])
def test_planted_log_bug_is_found(
    name: str,
    planted: Callable[[], AbstractContextManager[None]],
    letters: tuple[str, ...],
    first: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for seed in range(first, first + MOST_SEEDS):
        try:
            with planted():
                live(seed)
        except LogSeedFailed as failed:
            if str(failed.__cause__).startswith(letters):
                with capsys.disabled():
                    print(f" {name}: seed {seed}", end="")
                return
    pytest.fail(f"{name}: not found in {MOST_SEEDS} seeds")


def test_same_log_seed_same_story() -> None:
    """I15: with any hashes of strings in this process."""
    seeds = (3, 4, 5)
    here = "".join(f"{report.seed} {report.events} {report.trace}\n" for report in map(live, seeds))
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "sim.log_scenario", *map(str, seeds)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == here


def test_another_log_seed_is_another_story() -> None:
    assert len({live(seed).trace for seed in range(5)}) == 5


def live(seed: int) -> Report:
    with no_longer_than(60, seed):
        return run(draw(seed))
