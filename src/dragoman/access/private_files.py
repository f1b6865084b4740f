"""Files and folders that only one user may change: checks, and atomic writes.

Opened files and folders are checked, not their names: another user may replace what is under a name meanwhile.

Windows has neither owners and modes that Python reads, nor descriptors of folders. There files are written by their
names, and nobody checks who else may read them (R263). An access folder cannot be read there.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from dragoman.access.problems import access_error

FILE_MODE = 0o600
FOLDER_MODE = 0o700
HAS_OWNERS: Final = hasattr(os, "geteuid")
OPENS_FOLDERS: Final = os.open in os.supports_dir_fd


def own_uid() -> int:
    """Return the user id of this process, or 0 where there are none."""
    return os.geteuid() if HAS_OWNERS else 0


def is_open_to(others: int, found: os.stat_result) -> bool:
    """Return whether the mode of a file gives other users one of these permissions. False where files have no modes."""
    return HAS_OWNERS and bool(found.st_mode & others)


def check_owner(path: Path, found: os.stat_result, uid: int) -> None:
    """Raise AccessError if the file belongs neither to this user nor to root."""
    if HAS_OWNERS and found.st_uid not in (uid, 0):
        raise access_error(
            path,
            f"belongs to uid {found.st_uid}, and must belong to uid {uid} or root; "
            f"run: chown {uid} {shlex.quote(str(path))}",
        )


def check_unwritable(path: Path, found: os.stat_result) -> None:
    """Raise AccessError if users other than the owner may write."""
    if is_open_to(stat.S_IWGRP | stat.S_IWOTH, found):
        raise access_error(path, f"other users may write to it; run: chmod go-w {shlex.quote(str(path))}")


@contextmanager
def opened_file(path: Path, folder: int | None = None) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Yield a file to read and its status. `folder`: a file descriptor of its folder. Raises OSError, or AccessError if
    it is something else than a file."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    handle = os.open(path.name if folder is not None else path, flags, dir_fd=folder)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise access_error(path, "is not a file; remove it, or name another")
    with open(handle, "rb") as file:
        yield file, found


@contextmanager
def checked_folder(path: Path, uid: int | None = None, *, locked: bool = False) -> Iterator[int]:
    """Yield a file descriptor of the folder. `uid`: check that only this user and root may change it.

    `locked`: wait until no other command has it locked. Raises OSError or AccessError.
    """
    if not OPENS_FOLDERS:
        raise access_error(
            path, "this system cannot check and lock folders; run the command on the broker's machine, on Linux"
        )
    if uid is not None:
        check_owner(path, os.lstat(path), uid)  # of a symbolic link, too
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if uid is not None:
            found = os.fstat(handle)
            check_owner(path, found, uid)
            check_unwritable(path, found)
        if locked:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def make_folder(path: Path) -> bool:
    """Create the folder with mode 0700 if it is missing, and those above it. Returns True if it was missing.

    If root creates it, its owner is that of the folder above: the broker must be able to read what root writes.
    """
    if not path.parent.exists():
        make_folder(path.parent)
    if not OPENS_FOLDERS:
        is_there = path.is_dir()
        path.mkdir(FOLDER_MODE, exist_ok=True)
        return not is_there
    with _naming_file(path), checked_folder(path.parent) as above:
        try:
            os.mkdir(path.name, FOLDER_MODE, dir_fd=above)
        except FileExistsError:
            return False
        handle = os.open(path.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        try:
            _inherit_owner(handle, above)
            os.fsync(above)
        finally:
            os.close(handle)
    return True


def write_file(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file with mode 0600: all of it or nothing, also if the machine fails. Its owner is as in `make_folder`.
    Raises FileExistsError if it exists and `replace` is False."""
    if not OPENS_FOLDERS:
        _write_by_name(path, content, replace)
        return
    with _naming_file(path), checked_folder(path.parent) as folder:
        fresh = f".{path.name}.{os.urandom(8).hex()}"  # hidden: readers of the folder skip it
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(fresh, flags, FILE_MODE, dir_fd=folder)
        try:
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(handle, FILE_MODE)
                _inherit_owner(handle, folder)
                os.fsync(handle)
            if replace:
                os.replace(fresh, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                os.link(fresh, path.name, src_dir_fd=folder, dst_dir_fd=folder)
                os.unlink(fresh, dir_fd=folder)
        except BaseException:
            os.unlink(fresh, dir_fd=folder)
            raise
        os.fsync(folder)


def _write_by_name(path: Path, content: bytes, replace: bool) -> None:
    """Write a file where folders have no descriptors: all of it or nothing."""
    fresh = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), FILE_MODE)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(fresh, path)
        else:
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Delete a file, and sync its folder. Raises FileNotFoundError."""
    with _naming_file(path), checked_folder(path.parent) as folder:
        os.unlink(path.name, dir_fd=folder)
        os.fsync(folder)


@contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Give errors the path of the file: those of descriptors have a part of it, or none."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _inherit_owner(handle: int, folder: int) -> None:
    """Give a file that root has made to the owner of its folder. Both are descriptors: a user who may change the folder
    could otherwise put another file there meanwhile, and get it."""
    above = os.fstat(folder)
    if os.geteuid() == 0 and above.st_uid != 0:
        os.fchown(handle, above.st_uid, above.st_gid)
