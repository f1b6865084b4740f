"""Packages of Node for tests: downloaded once, into a folder of pytest's cache."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path


def node_package(folder: Path, package: str) -> Path:
    """Return the folder `node_modules` with this package."""
    for program in ("node", "npm"):
        assert shutil.which(program), f"these tests need {program}: on Debian and Ubuntu, apt-get install nodejs npm"
    fetched = folder / "fetched"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may run these tests
        if not fetched.exists():
            words = ["npm", "install", "--prefix", str(folder), "--no-save", "--no-package-lock", "--no-audit"]
            made = subprocess.run(
                [*words, "--no-fund", "--ignore-scripts", package],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=100,
            )
            assert made.returncode == 0, f"npm could not fetch the package {package}:\n{made.stderr}"
            fetched.touch()
    return folder / "node_modules"
