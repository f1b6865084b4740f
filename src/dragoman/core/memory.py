"""The memory account: bytes of payloads and of data in transit, together at most `max_memory` (L6).

Payloads of jobs stay for as long as their jobs. Everything else is in transit: it ends with a message, a result or a
connection. A sixteenth of `max_memory` is reserved for data in transit: if payloads could take all of it, no job could
be sent to its worker any more.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, final

RESERVE: Final = 16  # one part in this number is reserved for data in transit


class Transit(StrEnum):
    """Kind of data in transit."""

    RESULT_PARTS = "result parts"  # kept until the rest of their result arrives
    EARLY_RESULTS = "early results"  # of jobs that are not restored yet (R107)
    INCOMPLETE = "incomplete messages"
    UNSENT = "unsent data"
    BODIES = "HTTP bodies"  # unfinished
    RESPONSES = "HTTP responses"  # unsent


@final
class MemoryAccount:
    """Counts bytes by kind. Each kind has an owner, which decides what to refuse or to close when there is no room."""

    __slots__ = ("_reserve", "in_transit", "limit", "mark", "measure", "payload_limit", "payloads", "transit")

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self.payloads = 0  # of jobs that wait or run; the job registry counts them
        self.in_transit = 0
        self.transit: Final[dict[Transit, int]] = dict.fromkeys(Transit, 0)
        self._reserve: Final = limit // RESERVE
        self.payload_limit = limit - self._reserve  # what payloads may take now
        self.mark = _mark(self.payload_limit)  # up to here, no principal can be over its share
        self.measure: Callable[[], None] = _nothing  # updates unsent data, which shrinks without a notice

    def set_transit(self, kind: Transit, size: int) -> None:
        """Set the bytes of one kind."""
        self.in_transit += size - self.transit[kind]
        self.transit[kind] = size
        self.payload_limit = self.limit - max(self.in_transit, self._reserve)
        self.mark = _mark(self.payload_limit)

    def fits(self, size: int) -> bool:
        """True if there is room for a payload of this size."""
        if self.payloads + size > self.payload_limit:
            self.measure()
        return self.payloads + size <= self.payload_limit

    def room(self) -> int:
        """Bytes that may still come in transit; negative if there are too many."""
        if self.payloads + self.in_transit > self.limit:
            self.measure()
        return max(self.limit - self.payloads, self._reserve) - self.in_transit

    def problem(self) -> str:
        """Return the part of an error message that says what takes the memory."""
        text = f"payloads of jobs take {self.payloads} of {self.limit} bytes (max_memory)"
        if self.payloads + self._reserve < self.limit and self.in_transit > self._reserve:
            text = f"payloads of jobs take {self.payloads} and data in transit {self.in_transit} of {self.limit} bytes"
            text += " (max_memory)"
        return text


def _mark(payload_limit: int) -> int:
    """Return half of what is not reserved: a principal has at most what is taken, and so not more than is free."""
    return (payload_limit - payload_limit // RESERVE) // 2


def _nothing() -> None:
    pass
