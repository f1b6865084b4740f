"""Checks whether the open files are still those in the folder (R130).

A file that was removed, or whose folder was replaced, can still be written to, but no other process can find it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ADVICE: Final = "save it with `dragoman store rescue` before you stop the broker"
CUT_ADVICE: Final = "its content is lost; stop the broker, and run `dragoman store recover`"


class Presence:
    """Compares inodes. The inode of an open file is not reused."""

    def __init__(self, *paths: Path) -> None:
        self._paths = [str(path) for path in paths]
        self._known: list[tuple[int, int] | None] = [_identity(path) for path in self._paths]

    def missing_file(self) -> str | None:
        """Return an error message about a missing file, or None. A new file becomes known when it first appears."""
        for index, path in enumerate(self._paths):
            found, known = _identity(path), self._known[index]
            if known is None:
                self._known[index] = found
            elif found != known:
                what = "was removed" if found is None else "was replaced by another file"
                return f"{path} {what} while the broker runs; the open file is the last copy: {ADVICE}"
        return None


def cut(log: str, size: int) -> str | None:
    """Return an error message if the log is shorter than `size`. Call it before a write, which makes the log longer."""
    try:
        found = os.stat(log).st_size
    except OSError:
        return None
    if found >= size:
        return None
    return f"{log} was cut to {found} of {size} bytes while the broker runs: {CUT_ADVICE}"


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
