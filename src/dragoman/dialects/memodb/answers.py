"""Answers that were given, kept for callers that ask again: for a while, and within a bound of bytes (R63)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

from dragoman.dialects.memodb.requests import Call

RECORD: Final = 512  # about what a kept answer costs besides its payload


class Answers:
    __slots__ = ("_forget", "_kept", "_seconds", "bytes", "max_bytes")

    def __init__(self, seconds: float, max_bytes: int, forget: Callable[[Call], None]) -> None:
        self.bytes = 0
        self.max_bytes = max_bytes
        self._seconds = seconds
        self._forget = forget  # told of each that is not kept any longer
        self._kept: deque[Call] = deque()  # in the order they were given; dropped ones have no answer any more

    def keep(self, call: Call, now: float) -> None:
        call.kept_until = now + self._seconds
        self._kept.append(call)
        self.bytes += _size(call)
        while self.bytes > self.max_bytes:
            self.drop(self._kept.popleft())

    def drop(self, call: Call) -> None:
        if call.answer is not None:
            self.bytes -= _size(call)
            self._forget(call)
            call.answer = None

    def expire(self, now: float) -> float:
        """Drop those whose time is over. Returns when the next is due."""
        kept = self._kept
        while kept and (kept[0].kept_until <= now or kept[0].answer is None):
            self.drop(kept.popleft())
        return kept[0].kept_until if kept else inf


def _size(call: Call) -> int:
    assert call.answer is not None
    return RECORD + sum(map(len, call.answer))
