"""Runs commands in the process of a test, with every release of click that pyproject.toml allows."""

from __future__ import annotations

from inspect import signature
from typing import Any

from click.testing import CliRunner


def command_runner() -> CliRunner:
    """A runner that keeps standard output and standard error apart, which click before 8.2 has to be asked for."""
    options: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
    return CliRunner(**options)
