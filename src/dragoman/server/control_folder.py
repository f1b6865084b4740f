"""The folder in which a controller and its workers have their sockets (R84, T16)."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection

from dragoman.sdk.address import MAX_UNIX_PATH_BYTES, Place, UnixPlace

MAIN = "main.sock"
LONGEST_ID = 16  # digits: ids stay below 2**53
WORKERS_SOCKET = re.compile(r"[0-9]+\.sock")


class ControlFolder:
    def __init__(self, path: str, mode: int, uids: Collection[int]) -> None:
        """`uids`: whose sockets are dialled, and cleared away."""
        self._path = path
        self._mode = mode
        self._uids = frozenset(uids)

    @property
    def main(self) -> UnixPlace:
        return UnixPlace(os.path.join(self._path, MAIN))

    def prepare(self) -> None:
        """Make it, if need be, and see that it is fit. Raises OSError."""
        if len(os.fsencode(os.path.join(self._path, "0" * LONGEST_ID + ".sock"))) > MAX_UNIX_PATH_BYTES:
            raise OSError(errno.ENAMETOOLONG, "its path is too long for the sockets in it", self._path)
        try:
            os.mkdir(self._path, self._mode)
            os.chmod(self._path, self._mode)  # whatever our umask says
        except FileExistsError:
            pass
        found = os.stat(self._path)
        if not stat.S_ISDIR(found.st_mode):
            raise OSError(errno.ENOTDIR, "it is not a folder", self._path)
        if found.st_uid not in (os.getuid(), 0):
            raise OSError(errno.EPERM, f"it belongs to uid {found.st_uid}", self._path)
        if found.st_mode & stat.S_IWOTH:
            raise OSError(errno.EPERM, "everybody may write there", self._path)

    def clear(self) -> None:
        """Remove what workers of an earlier run have left.

        To be called once the main socket is ours: until then another controller may be alive. No socket is tried: a
        worker that is still there would wait for a message.
        """
        if not self._uids <= {os.getuid(), 0}:
            os.chmod(self.main.path, 0o666)  # noqa: S103 - they may come in: the folder has a mode, and SO_PEERCRED tells
        for name in os.listdir(self._path):
            path = os.path.join(self._path, name)
            if WORKERS_SOCKET.fullmatch(name):
                try:
                    found = os.lstat(path)
                    if stat.S_ISSOCK(found.st_mode) and found.st_uid in self._uids:
                        os.unlink(path)
                except OSError:
                    pass

    def reach(self, worker_id: int) -> tuple[Place | None, str]:
        """Where this worker listens, or why it is not dialled."""
        path = os.path.join(self._path, f"{worker_id}.sock")
        try:
            found = os.lstat(path)
        except OSError as error:
            return None, f"{path}: {error.strerror}"
        if not stat.S_ISSOCK(found.st_mode):
            return None, f"{path} is not a socket"
        if found.st_uid not in self._uids:
            return None, f"{path} belongs to uid {found.st_uid}, who is not in uid_allow"
        return UnixPlace(path), ""
