"""The data folder: private, locked by one broker at a time, with the epoch of worker ids."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dragoman.server.folders import check_mode, check_owner, is_link, opened
from dragoman.store.ballast import Ballast
from dragoman.store.errors import NO_ROOM
from dragoman.store.file_names import NAME as STORE
from dragoman.store.file_names import adopt_older
from dragoman.store.losses import EPOCH, read_epoch, without_store, write_epoch

T = TypeVar("T")

IDS_A_RUN = 1 << 32
MAX_EPOCH = 1 << 21  # ids stay below 2**53, so that every JSON parser keeps them exact


class DataFolderLocked(Exception):
    """Another broker uses this data folder."""


class FolderLock:
    """Excludes other users of the folder until it is closed. Files of an earlier release get their present names."""

    def __init__(self, path: Path) -> None:
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 64, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._lock)
            raise DataFolderLocked(
                f"the data folder {path} is in use by the broker with process id {holder}"
            ) from error
        try:
            adopt_older(path)
        except BaseException:
            self.close()
            raise
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # the lock counts; only the process id of its holder is missing

    def close(self) -> None:
        os.close(self._lock)


class DataFolder:
    """The locked data folder of a running broker."""

    def __init__(self, path: Path, before_first: Callable[[Path], None] = lambda path: None) -> None:
        """`before_first` creates the store in a new folder. The epoch is written after that, so that an epoch without a
        store means a lost store (R129), which raises StoreError."""
        self.path = path
        self._before_first = before_first
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(path)
        self._lock = _with_room(path, lambda: FolderLock(path))
        try:
            self.epoch = _with_room(path, self._next_epoch)
            self._kept = os.open(path / EPOCH, os.O_RDONLY | os.O_CLOEXEC)  # for a rescue, if the folder is removed
        except BaseException:
            self._lock.close()
            raise

    @property
    def first_id(self) -> int:
        """First worker number of this run, above all numbers of earlier runs (R28, R85)."""
        return self.epoch * IDS_A_RUN + 1

    def close(self) -> None:
        os.close(self._kept)
        self._lock.close()

    def _next_epoch(self) -> int:
        kept = self.path / EPOCH
        try:
            epoch = read_epoch(self.path) + 1
        except FileNotFoundError:
            self._before_first(self.path)
            epoch = 0
        except ValueError:
            advice = f"it does not contain a number: restore it, or run `dragoman store recover {self.path}`"
            raise OSError(errno.EINVAL, advice, str(kept)) from None
        if (loss := without_store(self.path)) is not None:
            raise loss.error(self.path / STORE)
        if epoch >= MAX_EPOCH:
            raise OSError(errno.EINVAL, f"it has reached {MAX_EPOCH}: no ids are left, use another folder", str(kept))
        write_epoch(self.path, epoch)
        return epoch


def _check_private(path: Path) -> None:
    """Check that no other user can replace the files. A symbolic link is followed if this user or root owns it."""
    if is_link(str(path)):
        check_owner(str(path), os.lstat(path))
    with opened(os.path.realpath(path)) as (_, found):
        check_owner(str(path), found)
        check_mode(str(path), found, may_group=False)


def _with_room(folder: Path, act: Callable[[], T]) -> T:
    """Call `act`. On a full disk, release the ballast file of an earlier run and call it again (R101)."""
    try:
        try:
            return act()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            Ballast(folder, 0).drop()
            return act()
    except OSError as error:
        if error.errno in NO_ROOM or error.filename is None:
            error.filename = str(folder)  # the error of a full disk does not name the file
        raise


def first_id_without_folder() -> int:
    """Return the first worker number without a data folder, based on the clock (R85)."""
    return int(time.time()) * 1024
