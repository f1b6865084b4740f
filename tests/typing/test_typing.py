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


def test_mypy_sees_the_types_that_are_meant() -> None:
    # No configuration file: users do not have this project's.
    assert run("mypy", "--strict", "--config-file=", "--cache-dir", ROOT / ".mypy_cache" / "typing", *EXAMPLES) == ""


def test_pyright_sees_the_types_that_are_meant() -> None:
    assert run("basedpyright", "--project", HERE, "--pythonpath", sys.executable) == ""


def test_checkers_would_tell(tmp_path: Path) -> None:
    """A checker that took the whole package for Any would be content with everything."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from dragoman import Client\n\nsize: int = Client().call('resize')\n")
    assert '"bytes"' in run("mypy", "--strict", "--config-file=", "--cache-dir", ROOT / ".mypy_cache" / "typing", wrong)
    assert '"bytes"' in run("basedpyright", "--pythonpath", sys.executable, wrong)


def test_the_wheel_says_that_it_is_typed(tmp_path: Path) -> None:
    words = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT)
    assert run(*words) == ""
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert "dragoman/py.typed" in packed.namelist()
