"""`dragoman.Context`: a handler's access to its running job."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from math import inf
from typing import Any, Final

from dragoman.dialects.sides import NOTHING_SAID, JobInfo
from dragoman.sdk.codecs import Codec, Payload
from dragoman.sdk.errors import Unsupported

MOST_NOTE: Final = 4_096  # characters; the broker keeps reports of up to 64 KiB


class Context:
    """Information about the running job, passed to a handler parameter that is annotated `Context`."""

    __slots__ = (
        "_codec",
        "_due",
        "_is_cancelled",
        "_report",
        "_without_parts",
        "attempt",
        "job_id",
        "service",
        "traceparent",
        "waited",
    )

    def __init__(
        self,
        service: str,
        assignment: JobInfo,
        codec: Codec,
        report: Callable[[Payload, bool], None],
        is_cancelled: Callable[[], bool],
        without_parts: str = "",
    ) -> None:
        """`without_parts`: name of the dialect if it does not support parts of a result, else empty."""
        self.service = service
        self.job_id = assignment.job_id  # 32 hex digits; empty if the dialect does not send it
        self.attempt = assignment.attempt  # 1 for the first
        self.traceparent = assignment.traceparent  # W3C trace context of the submit; empty: none
        self.waited = assignment.waited  # seconds in the queue, for a job that has a traceparent
        self._due = time.monotonic() + assignment.timeout
        self._codec = codec
        self._report = report
        self._is_cancelled = is_cancelled
        self._without_parts = without_parts

    @property
    def deadline(self) -> float | None:
        """Seconds left for this attempt, at least 0; None if there is no limit."""
        return None if self._due == inf else max(0.0, self._due - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """True once the job is cancelled or timed out. Clean up and return; after a grace period it is killed."""
        return self._is_cancelled()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Send a progress report to the caller. Ignored if the dialect does not support progress. A note is cut to
        4,096 characters."""
        report: dict[str, Any] = {"done": done}
        if total is not None:
            report["total"] = total
        if note:
            report["note"] = note[:MOST_NOTE]
        self._report(json.dumps(report, ensure_ascii=False).encode(), False)

    def emit(self, part: Any) -> None:
        """Send a part of the result before the rest. Raises Unsupported if the dialect does not support parts, because
        a part must not get lost silently."""
        if self._without_parts:
            raise Unsupported(f"{self._without_parts} does not support parts of a result; return the whole result")
        self._report(self._codec.encode(part) + self._codec.separator, True)


def local_context(service: str) -> Context:
    """Return a context for a task that is called here, without a job: reports are ignored."""
    from dragoman.sdk.codecs import codec

    return Context(service, NOTHING_SAID, codec("bytes"), lambda *_: None, lambda: False)
