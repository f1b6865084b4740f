"""Passes calls from other threads to an event loop, with one wake-up for many calls."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from dragoman.sdk.parent_death import exit_if_forked


class LoopMailbox:
    """Any thread may post a call; the loop's thread executes the calls in order. In a process forked by a handler there
    is no such loop, so `post` ends that process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._process = os.getpid()
        self._posted: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._is_scheduled = False
        self._context = copy_context()  # otherwise posted calls would run in the context of a handler

    def post(self, act: Callable[[Any], object], argument: Any) -> None:
        exit_if_forked(self._process)
        self._posted.append((act, argument))
        if not self._is_scheduled:
            self._is_scheduled = True
            with suppress(RuntimeError):  # the loop is closed; the call is dropped
                self._loop.call_soon_threadsafe(self._run, context=self._context)

    def _run(self) -> None:
        self._is_scheduled = False  # first, so that later posts wake the loop again
        self.run_posted()

    def run_posted(self) -> None:
        """Execute what was posted by now. Called on the loop's thread."""
        posted = self._posted
        while posted:
            act, argument = posted.popleft()
            act(argument)
