"""Fixtures of tests that start processes; the classes are in programs.py."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import Programs

# A process in the background of a shell script ignores Ctrl-C, and so would all processes that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs that end with the test."""
    programs = Programs(tmp_path)
    yield programs
    programs.end_all()
