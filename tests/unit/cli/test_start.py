"""Starting a command: each loads only the libraries that it uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def loaded_by(statement: str, folder: Path | None = None) -> set[str]:
    """The modules that a new interpreter has after this statement. It looks for them in the folder first."""
    script = f"{statement}\nimport sys; print(*(name for name, module in sys.modules.items() if module))"
    environment = os.environ | ({"PYTHONPATH": str(folder)} if folder else {})
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    return set(done.stdout.decode().split())


def test_the_command_line_loads_neither_asyncio_nor_broker_nor_client() -> None:
    """Asyncio for two of its commands, and a library for one look at a file, were half of the start of all others."""
    loaded = loaded_by("import dragoman.cli")
    assert "click" in loaded
    assert not loaded & {"asyncio", "importlib.resources", "dragoman.server.serve", "dragoman.sdk.client"}


def test_a_broker_does_not_load_rich(tmp_path: Path) -> None:
    """The library of the log does, where it is installed: a fifth of the broker's start, for tracebacks of no use."""
    (tmp_path / "rich.py").write_text("")
    assert "rich" in loaded_by("import structlog", tmp_path)
    command = "dragoman.main(['serve', 'no url'], standalone_mode=False)"
    loaded = loaded_by(f"from dragoman.cli import dragoman\ntry: {command}\nexcept BaseException: pass", tmp_path)
    assert "structlog" in loaded
    assert "rich" not in loaded
