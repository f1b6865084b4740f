"""The compiled product: one build for all tests, with the C that it was compiled from.

Run as a program, which `make test` does beside the tests, this module builds it below `.build`. A test that needs it
waits for that build; without one of the present sources the test builds it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "dragoman"
BUILDS = ROOT / ".build"
NOTE = "dragoman is not compiled, it will be interpreted: "

# Optimization is the greater part of a C compiler's work, and the tests ask for behaviour only. The C files are in a
# folder that the build removes, so the compiler keeps a copy of each.
COMPILER = """#!/bin/sh
for each; do
    case "$each" in *.c) cp "$each" "{generated}" ;; esac
done
exec {compiler} "$@" -O0
"""


@dataclass(frozen=True)
class Product:
    package: Path  # a folder with the compiled package in it
    generated: Path  # a folder with the C of every compiled module
    wheel: Path  # the wheel that the package was unpacked from


def build_once(builds: Path = BUILDS) -> Product:
    """The product of the present sources, built by the first process that asks for it.

    A build of other sources is removed.
    """
    builds.mkdir(exist_ok=True)
    with open(builds / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = builds / f"product-{fingerprint()}"
        if not folder.exists():
            for old in builds.glob("product-*"):
                shutil.rmtree(old)
            unfinished = builds / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            _build(unfinished)
            unfinished.rename(folder)
    (wheel,) = folder.glob("*.whl")
    return Product(folder / "all", folder / "generated", wheel)


def fingerprint() -> str:
    """A name for everything that a build depends on: sources, the build's own code, Python, mypy, the compiler."""
    names = [ROOT / "pyproject.toml", ROOT / "hatch_build.py", Path(__file__)]
    names += sorted(path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    digest = hashlib.sha256()
    for part in (sys.version, sys.prefix, version("mypy"), version("setuptools"), sysconfig.get_config_var("CC")):
        digest.update(f"{part}\0".encode())
    for path in names:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _build(folder: Path) -> None:
    generated = folder / "generated"
    generated.mkdir()
    script = folder / "cc"
    script.write_text(COMPILER.format(compiler=sysconfig.get_config_var("CC"), generated=generated))
    script.chmod(0o755)
    wheel, said = build_wheel(folder, ROOT, CC=str(script))
    assert NOTE not in said, said[said.index(NOTE) :].splitlines()[0]
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "all")


def build_wheel(folder: Path, repository: Path, **environment: str) -> tuple[Path, str]:
    """A wheel of the sources, and what the build said."""
    plain = {name: value for name, value in os.environ.items() if name not in ("CC", "DRAGOMAN_PURE")}
    words = ("pip", "wheel", "-v", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(repository))
    done = subprocess.run(
        [sys.executable, "-m", *words], env=plain | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said
    (wheel,) = folder.glob("*.whl")
    return wheel, said


if __name__ == "__main__":
    build_once()
