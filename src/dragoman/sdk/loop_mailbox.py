"""Messages from other threads to an event loop: one wake-up for all that come together."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dragoman.sdk.parent_death import exit_if_forked


class LoopMailbox:
    """Any thread may post; the loop's own thread then calls what was posted, in order. A process that a handler
    forked has no such loop: it ends when it posts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._process = os.getpid()
        self._posted: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._is_called = False

    def post(self, act: Callable[[Any], object], what: Any) -> None:
        exit_if_forked(self._process)
        self._posted.append((act, what))
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._is_called = False  # before we look: what is posted from here on calls again
        posted = self._posted
        while posted:
            act, what = posted.popleft()
            act(what)
