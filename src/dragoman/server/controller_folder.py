"""The folder in which a controller and its workers have their sockets (R84, T16)."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection
from contextlib import suppress

from dragoman.sdk.address import MAX_UNIX_PATH_BYTES, SocketAddress, UnixAddress
from dragoman.server.folders import insist_on_mode, insist_on_owner, opened

MAIN = "main.sock"
LONGEST_ID = 16  # digits: ids stay below 2**53
WORKERS_SOCKET = re.compile(r"[0-9]+\.sock")


class ControllerFolder:
    def __init__(self, path: str, mode: int, uids: Collection[int]) -> None:
        """`uids`: whose sockets are dialled, and cleared away."""
        self._path = path
        self._mode = mode
        self._uids = frozenset(uids)
        self._identity: tuple[int, int] | None = None  # of the folder that was found fit

    @property
    def main(self) -> UnixAddress:
        return UnixAddress(os.path.join(self._path, MAIN))

    def prepare(self) -> None:
        """Make it, if need be, and see that it is fit. Raises OSError."""
        if len(os.fsencode(os.path.join(self._path, "0" * LONGEST_ID + ".sock"))) > MAX_UNIX_PATH_BYTES:
            raise OSError(errno.ENAMETOOLONG, "its path is too long for the sockets in it", self._path)
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
            insist_on_owner(self._path, found)
            if is_new:
                os.fchmod(handle, self._mode)  # whatever our umask says
                found = os.fstat(handle)
            insist_on_mode(self._path, found, may_group=True)
            self._identity = found.st_dev, found.st_ino

    def clear(self) -> None:
        """Remove what workers of an earlier run have left.

        To be called once the main socket is ours: until then another controller may be alive. No socket is tried: a
        worker that is still there would wait for a message.
        """
        with opened(self._path) as (handle, folder):
            if (folder.st_dev, folder.st_ino) != self._identity:
                raise OSError(errno.EPERM, "it was replaced by another folder while we started", self._path)
            if not self._uids <= {os.getuid(), 0}:
                # Others may come in: the folder has a mode, and SO_PEERCRED tells who they are.
                os.chmod(MAIN, 0o666, dir_fd=handle)  # noqa: S103
            for name in os.listdir(handle):
                if WORKERS_SOCKET.fullmatch(name):
                    with suppress(OSError):
                        found = os.lstat(name, dir_fd=handle)
                        if stat.S_ISSOCK(found.st_mode) and found.st_uid in self._uids:
                            os.unlink(name, dir_fd=handle)

    def reach(self, worker_id: int) -> tuple[SocketAddress | None, str]:
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
        return UnixAddress(path), ""
