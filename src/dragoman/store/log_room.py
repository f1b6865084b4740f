"""Preallocates the log: writes zeros behind its end.

A sync of a growing file makes the file system write its own journal, too; a sync within existing space takes half as
long. SQLite treats the first frame with other salts as the end of the log, so it ignores zeros. SQLite syncs the zeros
with the next commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from dragoman.store.log import size_of_log

STEP: Final = 1 << 20  # bytes of zeros that are written at a time: when a quarter of them is left
ZEROS: Final = memoryview(bytes(1 << 16))  # SQLite's own layer writes less than 128 KiB at once
OPEN_FLAGS: Final = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE


class LogRoom:
    """The preallocated space behind the log's last frame. The log is extended up to `most` bytes."""

    def __init__(self, log: Path, vfs: str | None, page_bytes: int, most: int) -> None:
        """`log`: the file, which may not exist yet. `vfs`: the file system layer that SQLite uses for it."""
        self._path = str(log)
        self._vfs = vfs or ""
        self._page_bytes = page_bytes
        self._step = min(STEP, most)
        self._least = self._step // 4
        self._most = most
        self._end = 0  # end of the file, as far as known

    def keep_ahead(self, frames: int) -> None:
        """Extend the log after a commit. The log has this many frames. On a full disk, nothing is written."""
        used = size_of_log(frames, self._page_bytes)
        if used + self._least <= self._end or used >= self._most:
            return
        try:
            self._end = self._extend(used)
        except (apsw.Error, OSError):
            self._end = self._most + self._least  # SQLite gets the same error when it needs the space, and reports it

    def _extend(self, used: int) -> int:
        """Write zeros behind the end of the file, if needed. Returns its new end.

        A file that is shorter than its frames was truncated. It is not extended, or that would not be noticed (R130).
        """
        file = apsw.VFSFile(self._vfs, self._path, [OPEN_FLAGS, 0])
        try:
            end = file.xFileSize()
            left = self._step if used <= end < used + self._least else 0
            while left > 0:
                zeros = ZEROS[:left]
                file.xWrite(zeros, end)
                end += len(zeros)
                left -= len(zeros)
            return end
        finally:
            file.xClose()
