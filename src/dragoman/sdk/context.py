"""What a handler may ask and say while it works at a job."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from math import inf
from typing import Any

from dragoman.dialects.sides import JobInfo
from dragoman.sdk.codecs import Codec, Payload
from dragoman.sdk.errors import Unsupported


class Context:
    """What a handler gets for a parameter that is annotated `Context`."""

    __slots__ = ("_codec", "_due", "_is_cancelled", "_mute", "_report", "attempt", "job_id", "service")

    def __init__(
        self,
        service: str,
        assignment: JobInfo,
        codec: Codec,
        report: Callable[[Payload, bool], None],
        is_cancelled: Callable[[], bool],
        mute: str = "",
    ) -> None:
        """`mute` names the dialect if that has no words for parts of a result."""
        self.service = service
        self.job_id = assignment.job_id  # 32 hex digits; empty where the wire does not tell
        self.attempt = assignment.attempt  # 1 for the first
        self._due = time.monotonic() + assignment.timeout
        self._codec = codec
        self._report = report
        self._is_cancelled = is_cancelled
        self._mute = mute

    @property
    def deadline(self) -> float | None:
        """How many seconds are left, never less than 0; none if there is no limit."""
        return None if self._due == inf else max(0.0, self._due - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: clean up and return, or be stopped after a moment."""
        return self._is_cancelled()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Tell the caller how far the job is. Passed over where the dialect has no word for it."""
        said: dict[str, Any] = {"done": done}
        if total is not None:
            said["total"] = total
        if note:
            said["note"] = note
        self._report(json.dumps(said, ensure_ascii=False).encode(), False)

    def emit(self, part: Any) -> None:
        """Send a part of the result ahead of the rest. Raises Unsupported where the dialect has no word for it: what
        is emitted must not get lost in silence."""
        if self._mute:
            raise Unsupported(f"{self._mute} has no word for parts of a result; return it whole")
        self._report(self._codec.encode(part) + self._codec.separator, True)
