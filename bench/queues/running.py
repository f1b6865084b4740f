"""Runs one system: its broker, its workers, and the client program that measures it. All end with the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from bench.brokers import ROOT, STOP_LIMIT, chosen, free_ports, wait_until_listening
from bench.measure import NotMeasured
from bench.queues.drive import QueueRun
from bench.queues.echo import PLACE
from bench.queues.home import find_redis
from bench.queues.systems import PROCESSES, WINDOW, System

LOG_TAIL = 1000
DRIVE_LIMIT = 45.0
REDIS_COMMAND = ("redis-server", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")  # no disk writes


@dataclass(frozen=True, slots=True)
class Effort:
    """Durations of the parts of a run."""

    warmup: float
    seconds: float
    call_seconds: float


def measure(system: System, effort: Effort) -> QueueRun:
    """Start a system, measure it and stop it. Raises NotMeasured."""
    [port] = free_ports(1)
    place = system.place.format(port=port)
    words = {"port": port, "place": place, "dragoman": chosen()}
    python = system.python or chosen().with_name("python")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), PLACE: place}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        sessions = Sessions(system.name, environment, folder, log)
        with sessions.ended():
            brokers = []
            if system.uses_redis:
                brokers.append(sessions.start([*REDIS_COMMAND, "--port", str(port), "--dir", folder], find_redis()))
            elif system.broker:
                brokers.append(sessions.start([part.format_map(words) for part in system.broker]))
            for broker in brokers:
                wait_until_listening(broker, system.name, port)
            workers = [sessions.start([part.format_map(words) for part in each]) for each in system.workers]
            command = [
                *(str(python), "-m", "bench.queues.drive", system.program, place),
                *("--window", str(WINDOW), "--processes", str(PROCESSES)),
                *("--warmup", str(effort.warmup), "--seconds", str(effort.seconds)),
                *("--call-seconds", str(effort.call_seconds)),
                *("--brokers", *(str(each.pid) for each in brokers)),
                *("--workers", *(str(each.pid) for each in workers)),
            ]
            return QueueRun(**json.loads(sessions.output_of(command)))


class Sessions:
    """Processes, each with all its child processes in its own session."""

    def __init__(self, name: str, environment: dict[str, str], folder: str, log: IO[bytes]) -> None:
        self._name = name
        self._environment = environment
        self._folder = folder
        self._log = log
        self._started: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Kill all processes at the end."""
        try:
            yield
        except NotMeasured as error:
            raise NotMeasured(f"{error}\n{self._last_words()}".strip()) from error
        finally:
            for process in reversed(self._started):
                try:
                    os.killpg(process.pid, signal.SIGKILL)  # also its child processes, if it has ended
                except ProcessLookupError:
                    pass
            for process in self._started:
                process.wait(STOP_LIMIT)

    def start(
        self, command: Sequence[str], program: str | None = None, output: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process. `program`: the executable that runs under the command's name."""
        try:
            process = subprocess.Popen(
                command,
                executable=program,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log if output is None else output,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            raise NotMeasured(f"{self._name}: {command[0]} cannot be started: {error}") from error
        self._started.append(process)
        return process

    def output_of(self, command: Sequence[str]) -> bytes:
        """Run a command to its end and return its output."""
        process = self.start(command, output=subprocess.PIPE)
        try:
            output, _ = process.communicate(timeout=DRIVE_LIMIT)
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"{self._name} was not measured within {DRIVE_LIMIT:g} s") from None
        if process.returncode:
            raise NotMeasured(f"{self._name}: the client failed")
        return output

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read()[-LOG_TAIL:].decode(errors="replace").strip()
