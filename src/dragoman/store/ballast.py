"""The ballast file: reserved disk space, released on a full disk so that outcomes can still be written (R101)."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "ballast"
CHUNK = bytes(1 << 20)


class Ballast:
    """Creates and removes the ballast file of a folder."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._path = folder / NAME
        self._size = size

    @property
    def is_there(self) -> bool:
        try:
            return self._path.stat().st_size >= self._size
        except OSError:
            return False

    def drop(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            pass  # the file system may be read-only: then removing it would not help

    def make(self) -> bool:
        """Create the file. False: there is no room for it, or too little besides it."""
        if self.is_there:
            return True
        try:
            return self.has_room() and self._fill()
        except OSError:
            self.drop()
            return False

    def has_room(self) -> bool:
        """True if this user has twice its size free."""
        return self._free() >= 2 * self._size

    @property
    def is_missed(self) -> bool:
        """True if it is missing and less than 1.5 times its size is free: the disk is still full."""
        return not self.is_there and self._free() < 1.5 * self._size

    def _free(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def _fill(self) -> bool:
        """Write actual bytes: a sparse file would not reserve space."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            left = self._size
            while left > 0:
                left -= os.write(descriptor, CHUNK[:left])
        finally:
            os.close(descriptor)
        return True
