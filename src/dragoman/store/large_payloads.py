"""Jobs whose payload is dropped when they end, long before their outcome is deleted."""

from __future__ import annotations

from typing import Final, cast

from dragoman.store.commit import Commit
from dragoman.store.rows import PAYLOAD

LARGE: Final = 4_096  # bytes


class LargePayloads:
    """Numbers of the stored jobs with large payloads. Jobs of earlier runs are unknown: they may have one."""

    __slots__ = ("_large", "_last_unknown")

    def __init__(self, last_unknown: int) -> None:
        """`last_unknown`: the highest number of an earlier run."""
        self._last_unknown = last_unknown
        self._large: dict[int, None] = {}

    def dropped_by(self, group: Commit) -> list[int]:
        """Return the jobs that end in this commit, cannot be retried, and may have a large payload."""
        large, last = self._large, self._last_unknown
        for row in group.jobs:
            payload = row[PAYLOAD]
            if not isinstance(payload, (bytes, bytearray)) or len(payload) > LARGE:  # or a job's number
                large[cast(int, row[0])] = None
        for number, changed in group.payloads.items():
            if len(changed) > LARGE:
                large[number] = None
        return [number for number in group.finished() if number <= last or number in large]

    def forget(self, group: Commit, dropped: list[int]) -> None:
        """Update the numbers after the commit."""
        for number in dropped:
            self._large.pop(number, None)
        for number in group.erased:
            self._large.pop(number, None)
