"""Writes zeros behind the end of the log, so that a commit finds room that exists.

A sync of a file that grows makes the file system write its own journal, too; a sync of room that exists takes half as
long. SQLite takes the first frame whose salts are not those of the log for the end, so it reads zeros as nothing.
The zeros are synced with the next commit, by SQLite.
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
    """The room behind the log's last frame. It grows up to `most` bytes of log."""

    def __init__(self, log: Path, vfs: str | None, page_bytes: int, most: int) -> None:
        """`log`: the file, which need not exist yet. `vfs`: the file system layer that SQLite uses for it."""
        self._path = str(log)
        self._vfs = vfs or ""
        self._page_bytes = page_bytes
        self._step = min(STEP, most)
        self._least = self._step // 4
        self._most = most
        self._end = 0  # of the file, as far as it is known

    def keep_ahead(self, frames: int) -> None:
        """After a commit: the log has this many frames. A disk without room for zeros gets none."""
        used = size_of_log(frames, self._page_bytes)
        if used + self._least <= self._end or used >= self._most:
            return
        try:
            self._end = self._extend(used)
        except (apsw.Error, OSError):
            self._end = self._most + self._least  # SQLite meets the same trouble when it needs the room, and reports it

    def _extend(self, used: int) -> int:
        """Write zeros behind the file's end, if they are needed. Returns its new end.

        A file that is shorter than its frames was cut. It stays so, or nobody would notice (R130).
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
