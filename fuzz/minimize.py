"""Chooses the inputs to keep for a target: few and small ones that reach all code that any known input reaches."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

import dragoman
from fuzz.targets import CORPUS, load

SOURCES = str(Path(dragoman.__file__).parent)

FAILED_ONCE = "found-"  # beginning of the names of inputs that have failed; they are always kept

Arc = tuple[str, int, int]  # file, line, next line


def minimize(target: str, found: Path) -> str:
    """Replace the kept inputs by the fewest of them and of `found`; those that have failed stay. Returns a report."""
    kept = CORPUS / target
    kept.mkdir(parents=True, exist_ok=True)
    test_one_input = load(target)
    paths = [path for folder in (kept, found) if folder.is_dir() for path in folder.iterdir()]
    paths = [path for path in paths if not path.name.startswith(FAILED_ONCE)]
    inputs = sorted({path.read_bytes() for path in paths}, key=lambda data: (len(data), data))
    arcs = {data: reached(test_one_input, data) for data in inputs}
    chosen: dict[bytes, set[Arc]] = {}
    known: set[Arc] = set()
    for data in inputs:
        if not arcs[data] <= known:
            chosen[data] = arcs[data]
            known |= arcs[data]
    for data in reversed(inputs):  # large ones whose arcs others have, too
        others = [each for key, each in chosen.items() if key != data]
        if data in chosen and others and chosen[data] <= set().union(*others):
            del chosen[data]
    for path in kept.iterdir():
        if not path.name.startswith(FAILED_ONCE):
            path.unlink()
    for data in chosen:
        (kept / sha256(data).hexdigest()[:16]).write_bytes(data)
    size = sum(map(len, chosen))
    return f"{len(chosen)} of {len(inputs)} inputs with {size} bytes reach all {len(known)} steps"


def reached(test_one_input: Any, data: bytes) -> set[Arc]:
    """Return the steps from line to line in Dragoman's sources that an input leads to."""
    arcs: set[Arc] = set()

    def trace_call(frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(SOURCES):
            return None
        last = 0

        def trace_line(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal last
            arcs.add((name, last, frame.f_lineno))
            last = frame.f_lineno
            return trace_line

        return trace_line

    sys.settrace(trace_call)
    try:
        test_one_input(data)
    finally:
        sys.settrace(None)
    return arcs
