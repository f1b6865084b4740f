"""Chaos: brokers and workers die by kill -9 while jobs come, run and end; then every table is read (N1, N4, N19)."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from chaos_oracle import executions, judge_counters, judge_executions, judge_jobs, judge_results
from http_worker import HttpWorker
from submitters import Submitters
from survivor import Survivor

from programs import Program, Programs, until

SERVICES = Path(__file__).with_name("chaos_services.py")
PATIENT = ("--set", "max_deaths=100", "--set", "resume=1")  # what our kills cost shall not end a job


class Workforce:
    """Native workers, several processes each. Whoever dies is replaced."""

    def __init__(self, programs: Programs, house: Survivor, count: int, processes: int) -> None:
        (programs.folder / SERVICES.name).write_text(SERVICES.read_text())
        self.executions = programs.folder / "executions"
        self.executions.touch()
        self.slots = count * processes
        self.deaths = 0
        self._programs = programs
        self._words = ("worker", "chaos_services:worker", "--connect", house.native, "--processes", processes)
        self.workers = [self._hire() for _ in range(count)]

    def _hire(self) -> Program:
        return self._programs.dragoman(*self._words, EXECUTIONS=str(self.executions))

    def kill_one(self, chance: random.Random) -> None:
        """All of it, its parent alone, or one of its children: that one its worker replaces itself."""
        index = chance.randrange(len(self.workers))
        worker = self.workers[index]
        manner = chance.choice(("all", "parent", "child"))
        children = worker.children()
        if manner == "child" and children:
            try:
                os.kill(chance.choice(children), signal.SIGKILL)
            except ProcessLookupError:
                pass
        else:
            os.killpg(worker.pid, signal.SIGKILL) if manner == "all" else worker.kill()
            worker.process.wait()
            self.workers[index] = self._hire()
        self.deaths += 1

    def progress(self) -> int:
        """About how many executions there were."""
        return self.executions.stat().st_size // 40


@pytest.mark.parametrize("seed", [1])
def test_ten_thousand_jobs_survive_kills(programs: Programs, seed: int) -> None:
    count, broker_kills, worker_kills = 10_000, 5, 10
    chance = random.Random(seed)
    house = Survivor(programs, *PATIENT)
    workforce = Workforce(programs, house, count=2, processes=2)
    guest = HttpWorker(house.place, workforce.executions)
    submitters = Submitters(house, count)

    deaths = ["broker"] * broker_kills + ["worker"] * worker_kills
    chance.shuffle(deaths)
    instants = sorted(chance.randrange(200, int(1.8 * count)) for _ in deaths)
    begin = time.monotonic()
    for victim, instant in zip(deaths, instants, strict=True):
        until(lambda: len(submitters.ids) + workforce.progress() >= instant, f"event {instant}", 60)  # noqa: B023
        print(f"{time.monotonic() - begin:.2f} {victim} {instant} {len(submitters.ids)} {workforce.progress()}")
        if victim == "worker":
            workforce.kill_one(chance)
        else:
            house.kill()
            house.start(until="is listening")  # the next death may come while it reads
    until(submitters.are_done, "all jobs are acknowledged", 60)
    print(f"{time.monotonic() - begin:.2f} acknowledged")
    until(house.has_ended_all, "all jobs have ended", 60)
    print(f"{time.monotonic() - begin:.2f} ended")
    guest.stop()
    submitters.close()

    jobs = {id: b"%d" % number for number, id in submitters.ids.items()}
    assert len(jobs) == count
    views = judge_jobs(house, jobs)
    print(f"{time.monotonic() - begin:.2f} listed")
    judge_results(house, jobs)
    print(f"{time.monotonic() - begin:.2f} results")
    unwritten = judge_executions(views, executions(workforce.executions), house.kills * (workforce.slots + 1))
    told = judge_counters(house, kept=count)
    print(unwritten, told, house.kills, workforce.deaths, guest.brought, submitters.repeats)
    print([(v["attempts"]) for v in views.values() if v["attempts"]])
