"""Programs as processes: started, watched through their output, and ended with the test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from preloaded import DRAGOMAN, Files, Process, start_anew, starter

T = TypeVar("T")
Start = Callable[[list[str], Path, Files], Process | subprocess.Popen[bytes]]

PATIENCE = 15.0  # seconds; only a failing test waits this long
HANDLERS = Path(__file__).with_name("handlers.py")  # handlers of workers: a copy is put beside them
STRANGERS = Path(__file__).parent / "interop" / "third_party"


def until(fact: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Wait until a condition is true. Returns its value."""
    deadline = time.monotonic() + patience
    while True:
        found = fact()
        if found:
            return found
        assert time.monotonic() < deadline, f"still waiting after {patience:g} s: {what}"
        time.sleep(0.01)


class Program:
    """One process. Its output goes to files, so that it never blocks on a reader."""

    def __init__(self, words: list[str], folder: Path, number: int, given: bytes, start: Start) -> None:
        self.words = words
        files = given_file, self._out, self._err = tuple(folder / f"{number}.{kind}" for kind in ("in", "out", "err"))
        given_file.write_bytes(given)
        self._out.touch()
        self._err.touch()
        self.process = start(words, folder, files)
        self.pid = self.process.pid

    @property
    def out(self) -> str:
        return self._out.read_text("utf-8", "replace")

    @property
    def out_bytes(self) -> bytes:
        return self._out.read_bytes()

    @property
    def err(self) -> str:
        return self._err.read_text("utf-8", "replace")

    def prints(self, pattern: str, times: int = 1) -> str:
        """Wait until the output matches the pattern this many times. Returns the last match, or its group."""

        def look() -> str | None:
            found = list(re.finditer(pattern, self.out + self.err))
            return (found[times - 1][1 if found[0].re.groups else 0] or " ") if len(found) >= times else None

        try:
            return until(lambda: look() or self._is_dead(pattern), f"{pattern!r} of {self.words}") or ""
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.out}\n{self.err}") from None

    def ends(self, patience: float = PATIENCE) -> int:
        """Wait for the exit. Returns the exit code."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.words} still runs after {patience:g} s\n{self.out}\n{self.err}") from None

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the exit."""
        self.signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        """Freeze the process, and wait until it is frozen."""
        self.signal(signal.SIGSTOP)
        until(lambda: state(self.pid) == "T", f"{self.words} is stopped")

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def children(self) -> list[int]:
        """Return the running processes that it has started."""
        found = []
        for each in Path(f"/proc/{self.pid}/task").glob("*/children"):
            found += [int(word) for word in each.read_text().split()]
        return found

    def _is_dead(self, pattern: str) -> None:
        if self.process.poll() is not None and not re.search(pattern, self.out + self.err):
            raise AssertionError(f"{self.words} ended with {self.process.returncode}\n{self.out}\n{self.err}")


class Broker(Program):
    """A `dragoman serve` that listens."""

    workers: str  # ZeroMQ endpoint of workers
    callers: str

    def listens(self) -> Broker:
        self.workers = self.prints(r"((?:tcp|ipc)://\S+) +workers")
        self.callers = self.prints(r"((?:tcp|ipc)://\S+) +callers")
        return self


class Programs:
    is_preloaded = True  # `dragoman` commands start with the package loaded

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Program] = []
        ours = ("DRAGOMAN_", "PYTEST_")  # settings of the broker and of the tests that run now
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.environment |= {"XDG_STATE_HOME": str(folder / "state"), "PYTHONUNBUFFERED": "1"}

    def start(self, *words: object, given: bytes = b"", kind: type[Program] = Program, **environment: str) -> Program:
        written = [str(word) for word in words]
        start = starter().start if self.is_preloaded and written[0] == DRAGOMAN else start_anew
        start = partial(start, environment=self.environment | environment)
        made = kind(written, self.folder, len(self.started), given, start)
        self.started.append(made)
        return made

    def dragoman(self, *words: object, given: bytes = b"", **environment: str) -> Program:
        return self.start(DRAGOMAN, *words, given=given, **environment)

    def dragoman_as(self, user: int, *words: object) -> Program:
        """Start a command as another user; the tests must run as root. Its modules were loaded by the tests' user."""
        written = [DRAGOMAN, *map(str, words)]
        start = partial(starter().start, environment=self.environment, user=user)
        made = Program(written, self.folder, len(self.started), b"", start)
        self.started.append(made)
        return made

    def run(self, *words: object, given: bytes = b"", **environment: str) -> Program:
        """Run a dragoman command that ends by itself."""
        program = self.dragoman(*words, given=given, **environment)
        program.ends()
        return program

    def broker(self, options: str = "", *flags: object, url: str = "") -> Broker:
        """Start a broker on free ports. `options` are appended to those in its URL."""
        url = url or f"pingpong+tcp://127.0.0.1:0?frontend=0{'&' if options else ''}{options}"
        broker = self.start(DRAGOMAN, "serve", url, "--data", "memory", "--strict", *flags, kind=Broker)
        assert isinstance(broker, Broker)
        return broker.listens()

    def stranger(self, name: str, *words: object) -> Program:
        """Start a program that was written from the documents alone."""
        return self.start(sys.executable, STRANGERS / f"{name}.py", *words)

    def end_all(self) -> None:
        """End every process, with all processes of its session."""
        for each in self.started:
            try:
                os.killpg(each.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            each.process.wait()


def state(pid: int) -> str:
    """Return the letter of a process's state, as the kernel names it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
