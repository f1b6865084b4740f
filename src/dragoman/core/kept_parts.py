"""Parts of results that are kept for callers that receive the result whole."""

from __future__ import annotations

from dragoman.core.model import Attempt, Payload
from dragoman.core.parts import Parts


class KeptParts:
    """The kept parts of all running attempts, up to a number of bytes."""

    def __init__(self, max_memory: int) -> None:
        self.bytes = 0  # size of all kept parts
        self._max_memory = max_memory

    def keep(self, attempt: Attempt, part: Payload) -> None:
        """Keep one more part of the attempt's result."""
        parts = attempt.parts
        if parts is None:
            parts = attempt.parts = Parts()
        self.bytes -= parts.kept
        parts.add(part, attempt.worker.profile.max_payload, self._max_memory - self.bytes)
        self.bytes += parts.kept

    def drop(self, attempt: Attempt) -> None:
        """Drop the parts of an attempt that has ended."""
        parts = attempt.parts
        if parts is not None:
            self.bytes -= parts.kept
            attempt.parts = None
