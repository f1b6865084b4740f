"""Hides packages, or parts of the system, from a Python process that has this folder on its PYTHONPATH.

`HIDDEN` in the environment names what: `extras`, the packages of Dragoman's extras.
"""

from __future__ import annotations

import importlib.abc
import os
import sys
from collections.abc import Sequence
from types import ModuleType

EXTRAS = {"anyio", "apsw", "cbor2", "django", "h11", "httptools", "nacl", "opentelemetry", "sentry_sdk", "starlette"}
EXTRAS |= {"structlog", "tzdata", "uvicorn", "uvloop"}


class Missing(importlib.abc.MetaPathFinder):
    """Finds none of these packages, as if they were not installed."""

    def __init__(self, packages: set[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        package = fullname.partition(".")[0]
        if package in self._packages:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)


hidden = os.environ.get("HIDDEN", "").split()
if "extras" in hidden:
    sys.meta_path.insert(0, Missing(EXTRAS))
