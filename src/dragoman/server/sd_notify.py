"""Notifies a supervisor that the broker is ready, is stopping, and is still running (man 3 sd_notify)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

SOCKET = "NOTIFY_SOCKET"
WATCHDOG = "WATCHDOG_USEC"
WATCHED_PROCESS = "WATCHDOG_PID"


class SdNotifier:
    """Sends notifications, if there is a supervisor. One that cannot be delivered is dropped: the broker continues."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._place = environment.get(SOCKET, "")
        self._watchdog = _watchdog(environment)
        self._closing = ""
        self._socket: socket.socket | None = None
        if self._place:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        if self._place.startswith("@"):
            self._place = "\0" + self._place[1:]  # an abstract socket

    def ready(self, loop: asyncio.AbstractEventLoop, status: Callable[[], str]) -> None:
        """Notify that the broker is ready. From now on the loop sends watchdog messages; if it hangs, the broker is
        restarted."""
        self.tell("READY=1", f"STATUS={status()}")
        self._beat_later(loop, status)

    def stopping(self) -> None:
        """Notify that the broker is stopping. Watchdog messages continue, because a loop may hang while it drains."""
        self._closing = "draining"
        self.tell("STOPPING=1", f"STATUS={self._closing}")

    def tell(self, *words: str) -> None:
        if self._socket is not None:
            try:
                self._socket.sendto("\n".join(words).encode(), self._place)
            except OSError:
                pass

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _beat(self, loop: asyncio.AbstractEventLoop, status: Callable[[], str]) -> None:
        self.tell("WATCHDOG=1", f"STATUS={self._closing or status()}")
        self._beat_later(loop, status)

    def _beat_later(self, loop: asyncio.AbstractEventLoop, status: Callable[[], str]) -> None:
        if self._socket is not None and self._watchdog is not None:
            loop.call_later(self._watchdog / 2, self._beat, loop, status)


def _watchdog(environment: Mapping[str, str]) -> float | None:
    """Return the seconds without a watchdog message after which the broker is restarted; None if it is not watched."""
    if environment.get(WATCHED_PROCESS, str(os.getpid())) != str(os.getpid()):
        return None
    microseconds = environment.get(WATCHDOG, "")
    return int(microseconds) / 1e6 if microseconds.isdecimal() and int(microseconds) else None
