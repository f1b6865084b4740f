"""Cache of replies for callers that repeat a request, limited in time and bytes (R63)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from dragoman.core.infinity import inf
from dragoman.dialects.memodb.records import PendingCall

RECORD: Final = 512  # approximate bytes of a kept reply besides its payload
SWEEP_FLOOR: Final = 64


class ReplyCache:
    """Replies in the order they were sent."""

    __slots__ = ("_dropped", "_forget", "_kept", "_seconds", "bytes", "max_bytes")

    def __init__(self, seconds: float, max_bytes: int, forget: Callable[[PendingCall], None]) -> None:
        self.bytes = 0
        self.max_bytes = max_bytes
        self._seconds = seconds
        self._forget = forget  # called for each reply that is removed
        self._dropped = 0  # dropped replies that are still in `_kept`
        self._kept: deque[PendingCall] = deque()  # oldest first; dropped ones have `is_answered` unset

    def keep(self, call: PendingCall, now: float) -> None:
        call.answered_at = now  # not the end of its time: replies of one iteration share this number
        self._kept.append(call)
        self.bytes += RECORD + len(call.result)
        while self.bytes > self.max_bytes:
            self._end(self._kept.popleft())

    def drop(self, call: PendingCall) -> None:
        """Remove a reply early. Its entry stays in `_kept` until its time, or until there are too many such."""
        self._end(call)
        self._dropped += 1
        if self._dropped > SWEEP_FLOOR + len(self._kept) // 2:
            self._kept = deque(each for each in self._kept if each.is_answered)
            self._dropped = 0

    def expire(self, now: float) -> float:
        """Remove expired replies. Returns the time of the next expiry."""
        kept, seconds = self._kept, self._seconds
        while kept and (kept[0].answered_at + seconds <= now or not kept[0].is_answered):
            self._end(kept.popleft())
        return kept[0].answered_at + seconds if kept else inf

    def _end(self, call: PendingCall) -> None:
        if call.is_answered:
            self.bytes -= RECORD + len(call.result)
            self._forget(call)
            call.is_answered = False
            call.result = b""
        else:
            self._dropped -= 1
