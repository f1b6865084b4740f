"""Whether the hot path of this installation is compiled; hatch_build.py decides when it is installed."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec


def how_built() -> str:
    """`compiled`, or `interpreted` and, where that is known, why."""
    found = find_spec("dragoman.core.broker")
    if found is not None and found.origin is not None and found.origin.endswith(".so"):
        return "compiled"
    reason = files("dragoman") / "interpreted.txt"
    return f"interpreted: {reason.read_text().strip()}" if reason.is_file() else "interpreted"
