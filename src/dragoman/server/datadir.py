"""The data folder: made for us alone, locked by one broker at a time, and keeper of the id epoch."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dragoman.server.folders import insist_on_mode, insist_on_owner, is_link, opened
from dragoman.store.ballast import Ballast
from dragoman.store.counter import sync_folder
from dragoman.store.errors import NO_ROOM
from dragoman.store.file_names import NAME as STORE
from dragoman.store.file_names import adopt_older
from dragoman.store.losses import EPOCH, without_store

T = TypeVar("T")

IDS_A_RUN = 1 << 32
MAX_EPOCH = 1 << 21  # ids stay below 2**53, so that every reader of JSON keeps them exact


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
            pass  # the lock is what counts; who holds it is not known then

    def close(self) -> None:
        os.close(self._lock)


class DataFolder:
    """Held for as long as the broker runs."""

    def __init__(self, path: Path, before_first: Callable[[Path], None] = lambda path: None) -> None:
        """`before_first`: makes the store in a new folder. The epoch comes after it, so that an epoch without a store
        is a store that was lost (R129). Raises DiaryError then."""
        self.path = path
        self._before_first = before_first
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _insist_on_privacy(path)
        self._lock = _with_room(path, lambda: FolderLock(path))
        try:
            self.epoch = _with_room(path, self._next_epoch)
            self._kept = os.open(path / EPOCH, os.O_RDONLY | os.O_CLOEXEC)  # for a rescue, if the folder is removed
        except BaseException:
            self._lock.close()
            raise

    @property
    def first_id(self) -> int:
        """Worker numbers of this run start above all that an earlier run gave out (R28, R85)."""
        return self.epoch * IDS_A_RUN + 1

    def close(self) -> None:
        os.close(self._kept)
        self._lock.close()

    def _next_epoch(self) -> int:
        kept = self.path / EPOCH
        try:
            epoch = int(kept.read_text()) + 1
        except FileNotFoundError:
            self._before_first(self.path)
            epoch = 0
        except ValueError:
            advice = "it does not hold a number: restore it, or write one larger than any before into it"
            raise OSError(errno.EINVAL, advice, str(kept)) from None
        if (loss := without_store(self.path)) is not None:
            raise loss.error(self.path / STORE)
        if epoch >= MAX_EPOCH:
            raise OSError(errno.EINVAL, f"it has reached {MAX_EPOCH}: the ids of this folder are used up", str(kept))
        fresh = self.path / "epoch.new"
        try:
            with open(fresh, "w", opener=_private) as file:
                file.write(f"{epoch}\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, kept)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        sync_folder(self.path)
        return epoch


def _insist_on_privacy(path: Path) -> None:
    """Whoever may write there can replace what is kept. A symbolic link is followed if we or root have made it."""
    if is_link(str(path)):
        insist_on_owner(str(path), os.lstat(path))
    with opened(os.path.realpath(path)) as (_, found):
        insist_on_owner(str(path), found)
        insist_on_mode(str(path), found, may_group=False)


def _with_room(folder: Path, act: Callable[[], T]) -> T:
    """Do it; on a full disk, in the room that an earlier run kept back (R101)."""
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
            error.filename = str(folder)  # a full disk does not say of which file it speaks
        raise


def first_id_without_folder() -> int:
    """With no memory of earlier runs, the clock keeps the numbers apart (R85)."""
    return int(time.time()) * 1024


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
