"""Opens folders, and rejects those that other users could have created or could change.

The opened folder is checked, not its name: another user may replace what is under that name meanwhile.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def opened(path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Yield a file descriptor of the folder and its status. A symbolic link is not followed. Raises OSError."""
    if is_link(path):
        raise OSError(errno.ELOOP, "it is a symbolic link: name the folder itself, or remove the link", path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise OSError(errno.ENOTDIR, "it is not a folder: choose another path, or remove it", path) from None
    try:
        yield handle, os.fstat(handle)
    finally:
        os.close(handle)


def is_link(path: str) -> bool:
    """True if it is a symbolic link. Raises OSError if the path does not exist."""
    return stat.S_ISLNK(os.lstat(path).st_mode)


def check_owner(path: str, found: os.stat_result) -> None:
    if found.st_uid not in (os.getuid(), 0):
        problem = f"it belongs to uid {found.st_uid}, and must belong to uid {os.getuid()} or root"
        raise OSError(errno.EPERM, f"{problem}: choose another path", path)


def check_mode(path: str, found: os.stat_result, *, may_group: bool) -> None:
    """Check that no other user may write. `may_group`: any group may; otherwise only this process's own group."""
    if found.st_mode & stat.S_IWOTH:
        raise OSError(errno.EPERM, f"all users may write there: run chmod o-w {shlex.quote(path)}", path)
    if found.st_mode & stat.S_IWGRP and not may_group and found.st_gid != os.getegid():
        problem = f"group {found.st_gid} may write there, not the broker's: run chmod g-w {shlex.quote(path)}"
        raise OSError(errno.EPERM, problem, path)
