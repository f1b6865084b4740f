"""Types of the package as users' type checkers see them: mypy and basedpyright read the other files of this folder.

Each file has types that must hold (`assert_type`) and mistakes that must be found (`type: ignore` and `pyright:
ignore`, none of them unused), so that a wrong or lost type is an error here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = sorted(path for path in HERE.glob("*.py") if path != Path(__file__))


def run(*words: object) -> str:
    """Run a checker and return its output; empty if it finds no error."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=ROOT,
        env=os.environ | {"DRAGOMAN_PURE": "1"},  # building a wheel takes less time
        capture_output=True,
        text=True,
        timeout=90,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A program with one mistake. A checker that took the whole package for Any would report nothing."""
    file = tmp_path / "wrong.py"
    file.write_text("from dragoman import Client\n\nsize: int = Client().call('resize')\n")
    return file


def test_mypy_sees_the_types_that_are_meant(wrong: Path) -> None:
    # No configuration file: users do not have this project's. The second run reads what the first has kept.
    mypy = ("mypy", "--strict", "--config-file=", "--cache-dir", ROOT / ".mypy_cache" / "typing")
    assert run(*mypy, *EXAMPLES) == ""
    assert '"bytes"' in run(*mypy, wrong)


def test_pyright_sees_the_types_that_are_meant(wrong: Path) -> None:
    assert run("basedpyright", "--project", HERE, "--pythonpath", sys.executable) == ""
    assert '"bytes"' in run("basedpyright", "--pythonpath", sys.executable, wrong)


def test_the_wheel_says_that_it_is_typed(tmp_path: Path) -> None:
    words = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT)
    assert run(*words) == ""
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert "dragoman/py.typed" in packed.namelist()
