"""The compiled product: one build for all tests of a run, with the C that it was compiled from."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "dragoman"
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


def build_once(folder: Path) -> Product:
    """The product in this folder, built by the first of the processes that ask for it."""
    product = Product(folder / "all", folder / "generated")
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not product.package.exists():
            _build(folder, product)
    return product


def _build(folder: Path, product: Product) -> None:
    product.generated.mkdir(exist_ok=True)
    script = folder / "cc"
    script.write_text(COMPILER.format(compiler=sysconfig.get_config_var("CC"), generated=product.generated))
    script.chmod(0o755)
    wheel, said = build_wheel(folder, ROOT, CC=str(script))
    assert NOTE not in said, said[said.index(NOTE) :].splitlines()[0]
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "unpacked")
    (folder / "unpacked").rename(product.package)


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
