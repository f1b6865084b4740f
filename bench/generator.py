"""Which load is used: load.c where it can be built, else load.py; and how it is run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import ROOT, Broker
from bench.measure import NotMeasured, Run

SOURCE = ROOT / "bench" / "load.c"
BINARY = ROOT / "bench" / "build" / "load"
RUN_LIMIT = 60.0


@dataclass(frozen=True, slots=True)
class Generator:
    """A load generator: what the table says about it, and the command it is run by."""

    title: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is asked of the broker: so many workers, so many jobs in flight, bodies of this size."""

    workers: int
    window: int
    size: int


def find_generator() -> Generator:
    """Build load.c if need be; fall back to pyzmq where gcc or libzmq's headers are missing."""
    hindrance = _build()
    if hindrance is not None:
        return Generator(f"pyzmq ({hindrance})", (sys.executable, "-m", "bench.load"))
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return Generator(f"C on libzmq {version}", (str(BINARY),))


def run_load(generator: Generator, broker: Broker, shape: Shape, warmup: float, seconds: float) -> Run:
    """Drive a broker for some seconds. A run with a wrong or missing reply is no run."""
    command = [
        *generator.command,
        *("--mode", broker.kind.mode),
        *("--frontend", broker.frontend),
        *("--backend", broker.backend),
        *("--workers", str(shape.workers)),
        *("--window", str(shape.window)),
        *("--size", str(shape.size)),
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


def _build() -> str | None:
    """Build load.c unless that was done; None, or what hindered it."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not _has_header(compiler):
        return "gcc or zmq.h missing: apt-get install gcc libzmq3-dev"
    if _is_fresh(BINARY):
        return None
    BINARY.parent.mkdir(exist_ok=True)
    flags = ("-O2", "-std=gnu11", "-Wall", "-Wextra")
    built = subprocess.run([compiler, *flags, "-o", BINARY, SOURCE, "-lzmq", "-lpthread"], check=False)
    return None if built.returncode == 0 else "bench/load.c could not be built, the compiler says why"


def _has_header(compiler: str) -> bool:
    probe = subprocess.run(
        [compiler, "-E", "-xc", "-"], input="#include <zmq.h>\n", text=True, capture_output=True, check=False
    )
    return probe.returncode == 0


def _is_fresh(binary: Path) -> bool:
    return binary.exists() and binary.stat().st_mtime >= SOURCE.stat().st_mtime
