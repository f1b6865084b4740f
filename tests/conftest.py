"""What tests with processes of their own share; the parts are in programs.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs that end with the test."""
    programs = Programs(tmp_path)
    yield programs
    programs.end_all()
