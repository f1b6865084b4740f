"""Watches local processes until they end, through pidfds."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from functools import partial

RESERVED_DESCRIPTORS = 256  # descriptors that watches leave free: files, pipes, exchanges with workers


def max_watched(max_connections: int) -> int:
    """Return the number of processes that may be watched. Each takes a descriptor, and connections come first."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max_connections if soft == resource.RLIM_INFINITY else max(0, soft - max_connections - RESERVED_DESCRIPTORS)


class Processes:
    """Watches any number of processes on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._watches: dict[ProcessWatch, None] = {}

    def watch(self, process: int, ended: Callable[[], None]) -> Callable[[], None] | None:
        """Call `ended` once when the process has ended. Returns a function that stops the watch.

        Returns None if the process cannot be watched: the kernel has no pidfds or does not allow them, the process has
        already ended, or too few descriptors are left.
        """
        if len(self._watches) >= self._most:
            return None
        try:
            pidfd = os.pidfd_open(process)
        except (OSError, AttributeError):  # AttributeError: Python was built without it
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
        """Stop a watch. Further calls do nothing, because the descriptor may be reused."""
        if watch in self._watches:
            del self._watches[watch]
            self._loop.remove_reader(watch.pidfd)
            os.close(watch.pidfd)


class ProcessWatch:
    """One watched process."""

    __slots__ = ("ended", "pidfd")

    def __init__(self, pidfd: int, ended: Callable[[], None]) -> None:
        self.pidfd = pidfd
        self.ended = ended
