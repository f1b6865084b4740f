"""Installs the other systems: an environment of the benchmarks, a redis-server, and a beanstalkd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.brokers import BUILD
from bench.measure import NotMeasured

VENV = BUILD / "queues-venv"
PYTHON = VENV / "bin" / "python"
REDIS_PACKAGE = "redis-tools"  # Debian's package: it has the server under another name, and starts no service
REDIS_OTHER_NAME = "redis-check-rdb"
BEANSTALKD = BUILD / "beanstalkd" / "usr" / "bin" / "beanstalkd"
INSTALL_LIMIT = 300.0


def install(name: str, requirements: Sequence[str]) -> None:
    """Install a system's packages unless they are installed. Raises NotMeasured with pip's message."""
    stamp = VENV / f".installed-{name}"
    wanted = "\n".join(requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if not PYTHON.exists():
        _run([sys.executable, "-m", "venv", str(VENV)], "no virtual environment can be made")
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, *requirements], f"{' '.join(requirements)} cannot be installed")
    stamp.write_text(wanted)


def find_redis() -> str:
    """Return the redis-server program, which must be called by that name. Raises NotMeasured."""
    found = _redis_here()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        try:
            _run(["apt-get", "install", "-y", "-qq", REDIS_PACKAGE], "")
        except NotMeasured:
            _run(["apt-get", "update", "-qq"], "no redis-server, and apt-get does not work")
            _run(["apt-get", "install", "-y", "-qq", REDIS_PACKAGE], f"no redis-server, and no {REDIS_PACKAGE}")
        found = _redis_here()
    if found is None:
        raise NotMeasured("redis-server not found: apt-get install redis-server")
    return found


def _redis_here() -> str | None:
    return shutil.which("redis-server") or shutil.which(REDIS_OTHER_NAME)


def find_beanstalkd() -> str:
    """Return the beanstalkd program. Debian's package would start a service, so it is unpacked and not installed.
    Raises NotMeasured."""
    found = shutil.which("beanstalkd")
    if found is not None:
        return found
    if not BEANSTALKD.exists():
        folder = BUILD / "beanstalkd"
        folder.mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "download", "-qq", "beanstalkd"], "no beanstalkd, and none can be had", folder)
        for package in folder.glob("*.deb"):
            _run(["dpkg", "-x", str(package), str(folder)], "beanstalkd cannot be unpacked")
    return str(BEANSTALKD)


def _run(command: Sequence[str], problem: str, folder: Path | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=INSTALL_LIMIT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMeasured(f"{problem}: {error}") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise NotMeasured(f"{problem}: {errors[-1] if errors else f'exit code {done.returncode}'}")
