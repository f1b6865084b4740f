"""Fixtures of the tests that run the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from programs import HANDLERS


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    """A folder with the handlers module, in which workers are started."""
    module = tmp_path / "handlers.py"
    module.write_text(HANDLERS.read_text())
    return module
