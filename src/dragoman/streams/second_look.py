"""A second read of each socket that was read recently: finds closed connections that the event loop did not report.

All sockets of a loop share one timer. A busy connection is read again at most once a second, and a connection that
became silent is read again once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

EVERY: Final = 1.0  # seconds
READS_A_PASS: Final = 256  # in one pass of the event loop, so that thousands of connections do not delay the others


class SecondLook:
    """Calls each added function once, within a second."""

    __slots__ = ("_is_timed", "_reads")

    def __init__(self) -> None:
        self._reads: deque[Callable[[], None]] = deque()
        self._is_timed = False

    def add(self, loop: asyncio.AbstractEventLoop, read: Callable[[], None]) -> None:
        self._reads.append(read)
        if not self._is_timed:
            self._is_timed = True
            loop.call_later(EVERY, self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._go_on(loop, len(self._reads))

    def _go_on(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        reads = self._reads
        for _ in range(min(left, READS_A_PASS)):
            reads.popleft()()
        if left > READS_A_PASS:
            loop.call_soon(self._go_on, loop, left - READS_A_PASS)
        elif reads:  # added during this pass
            loop.call_later(EVERY, self._begin, loop)
        else:
            self._is_timed = False


# A SecondLook refers to its loop only through a timer that the loop itself holds.
_SECOND_LOOKS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, SecondLook]] = WeakKeyDictionary()


def second_look_of(loop: asyncio.AbstractEventLoop) -> SecondLook:
    look = _SECOND_LOOKS.get(loop)
    if look is None:
        look = _SECOND_LOOKS[loop] = SecondLook()
    return look
