"""The folder with the sockets of a controller and its workers (R84, T16)."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection
from contextlib import suppress

from dragoman.sdk.address import MAX_UNIX_PATH_BYTES, SocketAddress, UnixAddress
from dragoman.server.folders import check_mode, check_owner, opened

MAIN = "main.sock"
LONGEST_ID = 16  # digits: ids stay below 2**53
WORKERS_SOCKET = re.compile(r"[0-9]+\.sock")


class ControllerFolder:
    """Creates, checks and cleans the folder, and finds the sockets of workers."""

    def __init__(self, path: str, mode: int, uids: Collection[int]) -> None:
        """`uids`: owners of the sockets that are dialled and removed."""
        self._path = path
        self._mode = mode
        self._uids = frozenset(uids)
        self._identity: tuple[int, int] | None = None  # device and inode of the checked folder

    @property
    def main(self) -> UnixAddress:
        return UnixAddress(os.path.join(self._path, MAIN))

    def prepare(self) -> None:
        """Create the folder if necessary, and check it. Raises OSError."""
        if len(os.fsencode(os.path.join(self._path, "0" * LONGEST_ID + ".sock"))) > MAX_UNIX_PATH_BYTES:
            raise OSError(errno.ENAMETOOLONG, "the path is too long for the sockets in it", self._path)
        try:
            os.mkdir(self._path, self._mode)
            is_new = True
        except FileExistsError:
            is_new = False
        except FileNotFoundError:
            parent = os.path.dirname(self._path)
            raise OSError(
                errno.ENOENT, f"{parent} does not exist: make it, or choose another path", self._path
            ) from None
        with opened(self._path) as (handle, found):
            check_owner(self._path, found)
            if is_new:
                os.fchmod(handle, self._mode)  # mkdir applied the umask
                found = os.fstat(handle)
            check_mode(self._path, found, may_group=True)
            self._identity = found.st_dev, found.st_ino

    def clear(self) -> None:
        """Remove sockets that workers of an earlier run have left.

        Call it after the main socket is bound: until then another controller may be running. No socket is connected to:
        a worker that is still running would wait for a message.
        """
        with opened(self._path) as (handle, folder):
            if (folder.st_dev, folder.st_ino) != self._identity:
                raise OSError(errno.EPERM, "it was replaced by another folder during the start", self._path)
            if not self._uids <= {os.getuid(), 0}:
                # Other users may connect: the folder has a mode, and SO_PEERCRED identifies them.
                os.chmod(MAIN, 0o666, dir_fd=handle)  # noqa: S103
            for name in os.listdir(handle):
                if WORKERS_SOCKET.fullmatch(name):
                    with suppress(OSError):
                        found = os.lstat(name, dir_fd=handle)
                        if stat.S_ISSOCK(found.st_mode) and found.st_uid in self._uids:
                            os.unlink(name, dir_fd=handle)

    def reach(self, worker_id: int) -> tuple[SocketAddress | None, str]:
        """Return the address of this worker's socket, or the reason not to dial it."""
        path = os.path.join(self._path, f"{worker_id}.sock")
        try:
            found = os.lstat(path)
        except OSError as error:
            return None, f"{path}: {error.strerror}"
        if not stat.S_ISSOCK(found.st_mode):
            return None, f"{path} is not a socket"
        if found.st_uid not in self._uids:
            return None, f"{path} belongs to uid {found.st_uid}, which is not in uid_allow"
        return UnixAddress(path), ""
