"""Generated code is up to date with controller.proto."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[4] / "src"
FOLDER = Path("dragoman/dialects/controller")


@pytest.fixture(scope="module")
def anew(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated")
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", f"--python_out={out}", f"--pyi_out={out}"]
    done = subprocess.run(
        [*command, str(FOLDER / "controller.proto")], cwd=SOURCE, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("name", ["controller_pb2.py", "controller_pb2.pyi"])
def test_generated_files_are_up_to_date(anew: Path, name: str) -> None:
    """If not: generate them as controller.proto says, and commit them with it."""
    assert (SOURCE / FOLDER / name).read_bytes() == (anew / FOLDER / name).read_bytes()
