"""Build of this installation: hatch_build.py compiles the hot path when it is installed, or does not."""

from __future__ import annotations

import os.path
from importlib.util import find_spec


def how_built() -> str:
    """`compiled`, or `interpreted` with the reason, if that is known."""
    found = find_spec("dragoman.core.broker")
    if found is not None and found.origin is not None and found.origin.endswith(".so"):
        return "compiled"
    reason = os.path.join(os.path.dirname(os.path.dirname(__file__)), "interpreted.txt")
    if not os.path.isfile(reason):
        return "interpreted"
    with open(reason, encoding="utf-8") as file:
        return f"interpreted: {file.read().strip()}"
