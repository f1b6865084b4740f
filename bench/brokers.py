"""Starts the measured brokers, each as a process on free loopback ports, inside a `with` block."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.measure import NotMeasured

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "bench" / "build"
PRODUCT = ROOT / ".venv" / "bin" / "dragoman"  # as users install it: compiled if there is a C compiler
INTERPRETED = Path(sys.executable).with_name("dragoman")  # interpreted sources
READY_LIMIT = 15.0
STOP_LIMIT = 5.0
LOG_TAIL = 2000

PROXY_COMMAND = (sys.executable, "-m", "bench.proxy", "{frontend}", "{backend}")
DRAGOMAN_COMMAND = (
    "{dragoman}",
    "serve",
    "pingpong+tcp://127.0.0.1:{backend}?frontend={frontend}",
    "--data",
    "memory",
)
MEMODB_COMMAND = ("{dragoman}", "serve", "memodb+tcp://127.0.0.1:{frontend}", "--data", "memory")
NATIVE_COMMAND = ("{dragoman}", "serve", "tcp://127.0.0.1:{frontend}", "--data", "memory")
PARKING_COMMAND = (
    "{dragoman}",
    "serve",
    "memodb+tcp://127.0.0.1:{frontend}?heartbeat_after=3600&queue_timeout=3600",
    "--data",
    "memory",
)
POWERHOSE_COMMAND = (
    "{dragoman}",
    "serve",
    "powerhose+tcp://127.0.0.1:{backend}?frontend={frontend}",
    "--data",
    "memory",
)
CONTROLLER_COMMAND = (
    "{dragoman}",
    "serve",
    "controller+unix://{folder}",
    "pingpong+tcp://127.0.0.1:{backend}?frontend={frontend}",  # the Controller has no callers
    "--data",
    "memory",
)
SP_ECHO_COMMAND = (sys.executable, "-m", "bench.specho", "{frontend}")
PLAIN_SP_COMMAND = (sys.executable, "-m", "bench.plainsp", "{frontend}")
HTTP_COMMAND = (
    "{dragoman}",
    "serve",
    "http://127.0.0.1:{frontend}",
    "tcp://127.0.0.1:{backend}?lease=600",
    "--data",
    "memory",
)
HTTP_ECHO_COMMAND = (sys.executable, "-m", "bench.httpecho", "{frontend}")
PLAIN_ECHO_COMMAND = (sys.executable, "-m", "bench.plainecho", "{frontend}")  # with the size of a message


@dataclass(frozen=True, slots=True)
class Kind:
    """A broker that can be started: its name in the tables, the load's mode for it, and its command.

    `{frontend}` and `{backend}` in the command become port numbers; without `{backend}` there is one port for both.
    `{folder}` becomes a folder where workers connect, `{data}` the data folder, and `{dragoman}` the selected program.
    """

    name: str
    mode: str
    command: tuple[str, ...]
    program: str | None = None  # program that runs under the command's name


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker."""

    kind: Kind
    pid: int
    frontend: str
    backend: str


_chosen = PRODUCT


def choose(program: Path) -> str:
    """Select the dragoman program to measure. Returns its version text."""
    global _chosen
    try:
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotMeasured(f"{program} does not run ({error}); `make bench` builds it") from error
    _chosen = program
    return version.strip()


def chosen() -> Path:
    """Return the dragoman program to measure."""
    return _chosen


@contextmanager
def running(kind: Kind) -> Iterator[Broker]:
    """Start a broker, wait until it listens on its ports, and stop it at the end."""
    frontend, backend = free_ports(2)
    if not any("{backend}" in part for part in kind.command):
        backend = frontend
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as folder, data_folder() as data:
        places = {"frontend": frontend, "backend": backend, "folder": folder, "data": data, "dragoman": _chosen}
        command = [part.format_map(places) for part in kind.command]
        has_folder = any("{folder}" in part for part in kind.command)
        workers_place = folder if has_folder else f"tcp://127.0.0.1:{backend}"
        try:
            process = subprocess.Popen(
                command, executable=kind.program, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        except OSError as error:
            raise NotMeasured(f"{kind.name} cannot be started: {error}") from error
        try:
            for port in (frontend, backend):
                wait_until_listening(process, kind.name, port)
            yield Broker(kind, process.pid, f"tcp://127.0.0.1:{frontend}", workers_place)
        except NotMeasured as error:
            if process.poll() is None:
                raise
            raise NotMeasured(f"{error}\n{_obituary(process, kind, log)}") from error
        finally:
            _stop(process)


def data_folder() -> tempfile.TemporaryDirectory[str]:
    """Create a folder on the disk of the working directory: the folder of temporary files may be in memory."""
    BUILD.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(dir=BUILD, prefix="data-")


def free_ports(count: int) -> list[int]:
    """Return distinct ports that were unused a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_until_listening(process: subprocess.Popen[bytes], name: str, port: int) -> None:
    """Wait until the broker accepts connections. Raises NotMeasured if it ends or takes too long."""
    deadline = time.monotonic() + READY_LIMIT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None:
                raise NotMeasured(f"{name} cannot be started") from None
            if time.monotonic() > deadline:
                raise NotMeasured(f"{name} does not listen on port {port} after {READY_LIMIT:g} s") from None
            time.sleep(0.02)


def _obituary(process: subprocess.Popen[bytes], kind: Kind, log: IO[bytes]) -> str:
    log.seek(0)
    last_words = log.read()[-LOG_TAIL:].decode(errors="replace").strip()
    return f"{kind.name} ended with exit code {process.returncode}; it wrote:\n{last_words}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Kill the broker: a drain would only cost time."""
    process.kill()
    process.wait(STOP_LIMIT)
