"""Whether the hot path of this installation is compiled; hatch_build.py decides when it is installed."""

from __future__ import annotations

from importlib.util import find_spec


def how_built() -> str:
    """`compiled` or `interpreted`."""
    found = find_spec("dragoman.core.broker")
    return (
        "compiled" if found is not None and found.origin is not None and found.origin.endswith(".so") else "interpreted"
    )
