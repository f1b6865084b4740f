"""Watches processes of this machine for their end, through pidfds."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from functools import partial

KEPT_BACK = 256  # descriptors that no watch may take: files, pipes, exchanges with workers


def most_watched(max_connections: int) -> int:
    """How many processes may be watched: each takes a descriptor, and peers come first."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max_connections if soft == resource.RLIM_INFINITY else max(0, soft - max_connections - KEPT_BACK)


class Processes:
    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._watches: dict[ProcessWatch, None] = {}

    def watch(self, process: int, ended: Callable[[], None]) -> Callable[[], None] | None:
        """Call `ended` once when the process has ended. Returns a function that stops the watch.

        Returns None if the process cannot be watched: the kernel has no pidfds or does not allow them, the process has
        ended already, or too few descriptors are left.
        """
        if len(self._watches) >= self._most:
            return None
        try:
            pidfd = os.pidfd_open(process)
        except (OSError, AttributeError):  # AttributeError: a Python that was built without it
            return None
        watch = ProcessWatch(pidfd, ended)
        self._watches[watch] = None
        self._loop.add_reader(pidfd, self._readable, watch)
        return partial(self._stop, watch)

    def close(self) -> None:
        for watch in list(self._watches):
            self._stop(watch)

    def _readable(self, watch: ProcessWatch) -> None:
        self._stop(watch)
        watch.ended()

    def _stop(self, watch: ProcessWatch) -> None:
        """May be called again: by then the descriptor may be another file's."""
        if watch in self._watches:
            del self._watches[watch]
            self._loop.remove_reader(watch.pidfd)
            os.close(watch.pidfd)


class ProcessWatch:
    __slots__ = ("ended", "pidfd")

    def __init__(self, pidfd: int, ended: Callable[[], None]) -> None:
        self.pidfd = pidfd
        self.ended = ended
