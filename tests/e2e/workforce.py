"""Native workers of several processes each, which are killed in every way, and replaced."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

from survivor import Survivor

from programs import PATIENCE, Program, Programs

SERVICES = Path(__file__).with_name("chaos_services.py")


class Workforce:
    """A set of workers. Each appends a line to the file `executions` for every job that it starts."""

    def __init__(
        self, programs: Programs, setup: Survivor, workers: int = 1, processes: int = 1, concurrency: int = 1
    ) -> None:
        (programs.folder / SERVICES.name).write_text(SERVICES.read_text())
        self.executions = programs.folder / "executions"
        self.executions.touch()
        self.concurrency = concurrency  # of each
        self.deaths = 0
        self._programs = programs
        words = ("--connect", setup.native, "--processes", processes, "--concurrency", concurrency)
        self._words = ("worker", "chaos_services:worker", *words)
        self.workers = [self._hire() for _ in range(workers)]

    @property
    def slots(self) -> int:
        """Return the number of jobs that they can hold."""
        return len(self.workers) * self.concurrency

    def executed(self) -> int:
        """Return the approximate number of executions: lines differ in length by a digit."""
        return self.executions.stat().st_size // 47

    def kill_one(self, chance: random.Random) -> None:
        """Kill a whole worker, its parent process only, or a process below it, which the worker replaces itself."""
        index = chance.randrange(len(self.workers))
        worker = self.workers[index]
        manner = chance.choice(("all", "parent", "below"))
        below = _below(worker.pid)
        if manner == "below" and below:
            _kill(os.kill, chance.choice(below))
        else:
            _kill(os.killpg if manner == "all" else os.kill, worker.pid)
            worker.process.wait()
            self.workers[index] = self._hire()
        self.deaths += 1

    def replace_the_dead(self) -> None:
        """Start a worker for each one that was killed by its own job."""
        for index, worker in enumerate(self.workers):
            worker.process.wait(PATIENCE)
            self.workers[index] = self._hire()

    def _hire(self) -> Program:
        return self._programs.dragoman(*self._words, EXECUTIONS=str(self.executions))


def _below(pid: int) -> list[int]:
    """Return the processes that it has started, and their children: child processes come from a fork server."""
    found: list[int] = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, each.read_text().split()):
            found += [child, *_below(child)]
    return sorted(found)


def _kill(how: object, pid: int) -> None:
    assert callable(how)
    try:
        how(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has gone meanwhile
