"""The file `commits`: the number of acknowledged commits, and whether the last run ended cleanly.

It is written after each commit, but not synced each time. So after a power failure it may be behind the store, but
never ahead of it. A store with fewer commits than this file has lost some.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

NAME: Final = "commits"
LENGTH: Final = 96  # bytes, always the same: written at once within one sector


@dataclass(frozen=True, slots=True)
class Count:
    """Number of commits. The store has it in a value that each commit updates; the file `commits` has a copy."""

    commits: int = 0
    jobs: int = 0  # jobs accepted with them
    at: float = 0.0  # wall clock time of the last commit

    def next(self, jobs: int, at: float) -> Count:
        return Count(self.commits + 1, self.jobs + jobs, at)

    @property
    def text(self) -> str:
        return f"{self.commits} {self.jobs} {self.at:.3f}"

    @staticmethod
    def of(text: str | None) -> Count:
        """Parse the text form. Raises ValueError."""
        if text is None:
            return Count()
        commits, jobs, at = text.split(" ")
        return Count(int(commits), int(jobs), float(at))


def read_count(folder: Path) -> tuple[Count, bool] | None:
    """Return the count in the file, and whether the last run ended cleanly: then the log is not needed.

    None if there is no such file, or it is invalid.
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
    """Writes the file. If that is not possible, the file stays behind the store."""

    def __init__(self, folder: Path, count: Count) -> None:
        """`count`: the count of the store."""
        self._folder = folder
        self._descriptor = -1
        self._is_marked = False  # the file on disk marks an unfinished run
        self._noted = count.commits

    def note(self, count: Count) -> None:
        """Write the count after a commit. The first write of a run is synced, so that the next start expects a log."""
        if count.commits == self._noted:
            return
        self._noted = count.commits
        self._is_marked = self._write(f"{count.text} open", sync=not self._is_marked) or self._is_marked

    def note_clean(self, count: Count) -> bool:
        """Mark a clean end, after the log was merged and before it is removed. False: not written, so keep the log."""
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
