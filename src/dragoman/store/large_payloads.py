"""Jobs whose payload is worth dropping when they have ended, long before their outcome is erased."""

from __future__ import annotations

from typing import Final, cast

from dragoman.store.commit import Commit
from dragoman.store.rows import PAYLOAD

LARGE: Final = 4_096  # bytes


class LargePayloads:
    """The store's jobs with large payloads, by number. Of jobs of earlier runs nobody knows: they may have one."""

    __slots__ = ("_large", "_last_unknown")

    def __init__(self, last_unknown: int) -> None:
        """`last_unknown`: the highest number of an earlier run."""
        self._last_unknown = last_unknown
        self._large: dict[int, None] = {}

    def dropped_by(self, group: Commit) -> list[int]:
        """Jobs that end with this group, cannot be tried again, and may have a large payload."""
        large, last = self._large, self._last_unknown
        for row in group.jobs:
            payload = row[PAYLOAD]
            if not isinstance(payload, (bytes, bytearray)) or len(payload) > LARGE:  # or the number of another job
                large[cast(int, row[0])] = None
        return [number for number in group.finished() if number <= last or number in large]

    def forget(self, group: Commit, dropped: list[int]) -> None:
        """The store has this group."""
        for number in dropped:
            self._large.pop(number, None)
        for number in group.erased:
            self._large.pop(number, None)
