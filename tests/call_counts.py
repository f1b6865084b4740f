"""Counts calls of the broker's functions: a measure of work that is the same on every machine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Left out: the client and worker sides, and code that both sides use.
NOT_THE_BROKER = ("carriers.", "sdk.", "testing.", "streams.")


@contextmanager
def counting() -> Iterator[Counter[tuple[str, str]]]:
    """Count calls inside the block, by module and function. Comprehensions are left out: newer Pythons make no call of
    them.

    Compiled functions are not seen.
    """
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, what: str, _: object) -> None:
        if what == "call":
            module = str(frame.f_globals.get("__name__", ""))
            function = frame.f_code.co_name
            if module.startswith("dragoman.") and not function.startswith("<"):
                name = module.removeprefix("dragoman.")
                if not name.startswith(NOT_THE_BROKER) and not name.endswith(".peer"):
                    calls[name, function] += 1

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(former)
