"""Opens folders, and refuses those that other users could have prepared or could change.

What is looked at is the opened folder, not its name: another user may put something else under that name meanwhile.
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
    """A handle of the folder at this path, and what it is. A symbolic link is not followed. Raises OSError."""
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
    """Raises OSError if nothing is there."""
    return stat.S_ISLNK(os.lstat(path).st_mode)


def insist_on_owner(path: str, found: os.stat_result) -> None:
    if found.st_uid not in (os.getuid(), 0):
        problem = f"it belongs to uid {found.st_uid}, and must belong to uid {os.getuid()} or root"
        raise OSError(errno.EPERM, f"{problem}: choose another path", path)


def insist_on_mode(path: str, found: os.stat_result, *, may_group: bool) -> None:
    """Nobody else may write there. `may_group`: its group may, whichever that is; else only a group that is our own."""
    if found.st_mode & stat.S_IWOTH:
        raise OSError(errno.EPERM, f"everybody may write there: run chmod o-w {shlex.quote(path)}", path)
    if found.st_mode & stat.S_IWGRP and not may_group and found.st_gid != os.getegid():
        sentence = f"group {found.st_gid} may write there, which is not ours: run chmod g-w {shlex.quote(path)}"
        raise OSError(errno.EPERM, sentence, path)
