"""The file `commits`: how many commits were acknowledged, and whether the last run ended cleanly.

It is written after each commit, but not synced each time. So it may lag behind the store after a power failure, and it
never leads. A store that has fewer commits than this file says has lost some.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

NAME: Final = "commits"
LENGTH: Final = 96  # bytes, always the same: written in one piece within one sector


@dataclass(frozen=True, slots=True)
class Count:
    """The store has it in a note, which each commit writes anew, and the file has it beside the store."""

    commits: int = 0
    jobs: int = 0  # how many jobs were accepted with them
    at: float = 0.0  # wall clock time of the last one

    def next(self, jobs: int, at: float) -> Count:
        return Count(self.commits + 1, self.jobs + jobs, at)

    @property
    def text(self) -> str:
        return f"{self.commits} {self.jobs} {self.at:.3f}"

    @staticmethod
    def of(text: str | None) -> Count:
        """Raises ValueError."""
        if text is None:
            return Count()
        commits, jobs, at = text.split(" ")
        return Count(int(commits), int(jobs), float(at))


def read_count(folder: Path) -> tuple[Count, bool] | None:
    """What the file says, and whether the last run ended cleanly: then the log is not needed.

    None if there is no such file, or it cannot be understood: then it says nothing.
    """
    try:
        line = (folder / NAME).read_bytes()[:LENGTH].decode("ascii").strip()
        text, _, check = line.rpartition(" ")
        if int(check, 16) != crc32(text.encode()):
            return None
        count, _, state = text.rpartition(" ")
        return Count.of(count), state == "clean"
    except (OSError, ValueError):
        return None


class Counter:
    """Writes the file. Where that is not possible, the file lags."""

    def __init__(self, folder: Path, count: Count) -> None:
        """`count`: what the store has already."""
        self._folder = folder
        self._descriptor = -1
        self._is_marked = False  # on disk it says that a run is under way
        self._noted = count.commits

    def note(self, count: Count) -> None:
        """After a commit. The first of a run is synced, so that the next start knows that there must be a log."""
        if count.commits == self._noted:
            return
        self._noted = count.commits
        self._is_marked = self._write(f"{count.text} open", sync=not self._is_marked) or self._is_marked

    def note_clean(self, count: Count) -> bool:
        """When the log has been merged, before it is removed. False: it could not be written, so keep the log."""
        self._is_marked = False
        return self._write(f"{count.text} clean", sync=True)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, text: str, sync: bool) -> bool:
        line = f"{text} {crc32(text.encode()):08x}".ljust(LENGTH - 1) + "\n"
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._descriptor, line.encode(), 0)
            if sync:
                os.fsync(self._descriptor)
                sync_folder(self._folder)
        except OSError:
            return False
        return True


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
