"""Fixtures of tests that start processes; the classes are in programs.py."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from authority import Authority
from programs import Programs

# A process in the background of a shell script ignores Ctrl-C, and so would all processes that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the thousands of collected tests, which are never garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs that end with the test."""
    programs = Programs(tmp_path)
    yield programs
    programs.end_all()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority for tests of TLS."""
    return Authority(tmp_path_factory.mktemp("tls") / "ca")
