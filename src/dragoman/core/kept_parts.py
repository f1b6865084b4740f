"""Parts of results that are kept for callers that receive the result whole."""

from __future__ import annotations

from dragoman.core.memory import MemoryAccount, Transit
from dragoman.core.model import Attempt, Payload
from dragoman.core.parts import Parts


class KeptParts:
    """The kept parts of all running attempts, as far as there is memory."""

    def __init__(self, memory: MemoryAccount) -> None:
        self.bytes = 0  # size of all kept parts
        self._memory = memory

    def keep(self, attempt: Attempt, part: Payload) -> None:
        """Keep one more part of the attempt's result."""
        parts = attempt.parts
        if parts is None:
            parts = attempt.parts = Parts()
        room = self._memory.room() + parts.kept
        self.bytes -= parts.kept
        parts.add(part, attempt.worker.profile.max_payload, room)
        self.bytes += parts.kept
        self._memory.set_transit(Transit.RESULT_PARTS, self.bytes)

    def drop(self, attempt: Attempt) -> None:
        """Drop the parts of an attempt that has ended."""
        parts = attempt.parts
        if parts is not None:
            self.bytes -= parts.kept
            attempt.parts = None
            self._memory.set_transit(Transit.RESULT_PARTS, self.bytes)
