"""The workers of the demo in other languages than Python, where this machine has what they need."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Final

from dragoman.demo.broker import DemoBroker
from dragoman.demo.processes import Child

REVERSE: Final = "reverse."  # a service for each dialect of workers begins with this
OLDEST_NODE: Final = 18  # the first with fetch


class Languages:
    """Programs in other languages by dialect, as words of a command to which the address and the service are added."""

    def __init__(self, folder: Path) -> None:
        self._commands: dict[str, tuple[str, list[str]]] = {}
        sources = Path(str(files("dragoman.demo")))
        if compiled := _compile(sources / "pingpong_worker.c", folder / "pingpong_worker"):
            self._commands["pingpong"] = "C", [compiled]
        if node := _node():
            self._commands["http"] = "JavaScript", [node, str(sources / "http_worker.mjs")]

    def of(self, dialect: str) -> str:
        """The language of the workers of a dialect."""
        return self._commands[dialect][0] if dialect in self._commands else "Python"

    def start(self, broker: DemoBroker, dialect: str, service: str, handler: str, seconds: float = 0.0) -> Child:
        """Start a worker of this dialect that returns payloads backwards after `seconds`. `handler`: the name of the
        handler of a worker in Python, which is started where there is no other."""
        if dialect not in self._commands:
            return broker.start_worker(dialect, {service: handler})
        url = broker.url(dialect, service, "workers").removeprefix(f"{dialect}+").partition("?")[0]
        language, words = self._commands[dialect]
        return broker.start_program(f"{dialect}-worker-{language}", *words, url, service, f"{seconds:g}")


def start_reversing(broker: DemoBroker, languages: Languages, dialects: list[str]) -> None:
    """Start one worker of each dialect, and wait until all are idle."""
    for dialect in dialects:
        languages.start(broker, dialect, REVERSE + dialect, "reverse")
    for dialect in dialects:
        broker.wait_for_workers(REVERSE + dialect)


def _compile(source: Path, program: Path) -> str | None:
    """The path of the compiled program; None without a C compiler, libzmq or its header."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    words = [compiler, "-O1", "-o", str(program), str(source), "-lzmq"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True)  # noqa: S603
    return str(program) if done.returncode == 0 else None


def _node() -> str | None:
    """The path of Node; None if there is none, or an old one."""
    node = shutil.which("node")
    if node is None:
        return None
    done = subprocess.run([node, "--version"], capture_output=True, text=True)  # noqa: S603
    number = done.stdout.strip().removeprefix("v").partition(".")[0]
    return node if number.isdecimal() and int(number) >= OLDEST_NODE else None
