"""Where the other systems come from: an environment of the bench's own, and a redis-server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from bench.brokers import BUILD
from bench.measure import NotMeasured

VENV = BUILD / "queues-venv"
PYTHON = VENV / "bin" / "python"
REDIS_PACKAGE = "redis-tools"  # Debian's: it has the server's program under another name, and starts no service
REDIS_OTHER_NAME = "redis-check-rdb"
INSTALL_LIMIT = 300.0


def install(name: str, requirements: Sequence[str]) -> None:
    """Install a system's packages unless that was done. Raises NotMeasured with what pip says."""
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
    """The program of redis-server, which must be called by that name. Raises NotMeasured."""
    return find_program(("redis-server", REDIS_OTHER_NAME), REDIS_PACKAGE)


def find_program(names: Sequence[str], package: str) -> str:
    """A server's program under one of these names; as root it is installed if there is none. Raises NotMeasured."""
    found = _first_of(names)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        try:
            _run(["apt-get", "install", "-y", "-qq", package], "")
        except NotMeasured:
            _run(["apt-get", "update", "-qq"], f"no {names[0]}, and apt-get does not work")
            _run(["apt-get", "install", "-y", "-qq", package], f"no {names[0]}, and no {package}")
        found = _first_of(names)
    if found is None:
        raise NotMeasured(f"there is no {names[0]}: apt-get install {package}")
    return found


def _first_of(names: Sequence[str]) -> str | None:
    return next((found for found in map(shutil.which, names) if found), None)


def _run(command: Sequence[str], problem: str) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=INSTALL_LIMIT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMeasured(f"{problem}: {error}") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise NotMeasured(f"{problem}: {said[-1] if said else f'exit code {done.returncode}'}")
