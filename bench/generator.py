"""Selects, builds and runs the load generators: load.c, or else load.py, for PingPong; load.c for native; spload.c for
MemoDB; calledback_load.py for dialects in which the broker connects to workers; http_load.py for HTTP; submitload.c for
background jobs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import BUILD, ROOT, Broker
from bench.measure import NotMeasured, Run

BENCH = ROOT / "bench"
RUN_LIMIT = 60.0


@dataclass(frozen=True, slots=True)
class Generator:
    """A load generator: its description in the table, and its command."""

    title: str
    command: tuple[str, ...]
    speaks_native: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """The load on a broker: number of workers, jobs in flight and size of bodies."""

    workers: int
    window: int
    size: int
    is_shared: bool = False  # MemoDB: one connection for all workers and one for all callers; else one each

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the command line options of the load."""
        arguments = ("--workers", str(self.workers), "--window", str(self.window), "--size", str(self.size))
        if not self.is_shared:
            return arguments
        return (
            *arguments,
            *("--workers-per-connection", str(self.workers)),
            *("--callers-per-connection", str(self.window)),
        )


CALLED_BACK_GENERATOR = Generator("pyzmq and plain sockets", (sys.executable, "-m", "bench.calledback_load"))
HTTP_GENERATOR = Generator("plain sockets in Python", (sys.executable, "-m", "bench.http_load"))


def find_generator() -> Generator:
    """Build load.c if necessary; fall back to pyzmq if gcc or libzmq's headers are missing."""
    try:
        load = str(_build("load", "zmq.h", "-lzmq", "-lpthread"))
    except NotMeasured as hindrance:
        return Generator(f"pyzmq ({hindrance})", (sys.executable, "-m", "bench.load"))
    version = subprocess.run([load, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return Generator(f"C on libzmq {version}", (load,), speaks_native=True)


def find_sp_generator() -> Generator:
    """Build spload.c if necessary. There is no fallback: a load in Python would cost more than the broker."""
    return Generator("C on plain sockets", (str(_build("spload", "sys/epoll.h")),))


def find_submit_generator() -> Generator:
    """Build submitload.c if necessary. There is no fallback, for the same reason."""
    return Generator("C on plain sockets", (str(_build("submitload", "sys/epoll.h")),))


def run_load(generator: Generator, broker: Broker, shape: Shape, warmup: float, seconds: float) -> Run:
    """Run the load for some seconds. A run with a wrong or missing reply raises NotMeasured."""
    command = [
        *generator.command,
        *("--mode", broker.kind.mode),
        *("--frontend", broker.frontend),
        *("--backend", broker.backend),
        *shape.arguments,
        *("--warmup", str(warmup)),
        *("--seconds", str(seconds)),
        *("--broker-pid", str(broker.pid)),
    ]
    limit = RUN_LIMIT + seconds
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=limit)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"the load on {broker.kind.name} did not end in {limit:g} s") from None
    if done.returncode:
        raise NotMeasured(f"the load on {broker.kind.name} failed: {done.stderr.strip()}")
    run = Run(**json.loads(done.stdout))
    if run.wrong or run.missing:
        raise NotMeasured(
            f"{broker.kind.name} gave {run.wrong} wrong replies and left {run.missing} out: {done.stderr.strip()}"
        )
    return run


def _build(name: str, header: str, *libraries: str) -> Path:
    """Build a load generator unless it is up to date. Raises NotMeasured with the reason if that fails."""
    source, binary = BENCH / f"{name}.c", BUILD / name
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not _has_header(compiler, header):
        package = "gcc libzmq3-dev" if header == "zmq.h" else "gcc libc6-dev"
        raise NotMeasured(f"gcc or {header} missing: apt-get install {package}")
    if not _is_fresh(binary, source, BENCH / "report.h"):
        binary.parent.mkdir(exist_ok=True)
        flags = ("-O2", "-std=gnu11", "-Wall", "-Wextra")
        if subprocess.run([compiler, *flags, "-o", binary, source, *libraries], check=False).returncode:
            raise NotMeasured(f"bench/{name}.c could not be built; see the compiler's output")
    return binary


def _has_header(compiler: str, header: str) -> bool:
    probe = subprocess.run(
        [compiler, "-E", "-xc", "-"], input=f"#include <{header}>\n", text=True, capture_output=True, check=False
    )
    return probe.returncode == 0


def _is_fresh(binary: Path, *sources: Path) -> bool:
    return binary.exists() and all(binary.stat().st_mtime >= source.stat().st_mtime for source in sources)
