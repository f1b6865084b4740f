"""When to give jobs up: many due times, of which nearly none is ever reached."""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil, inf, log2
from typing import Generic, TypeVar

T = TypeVar("T")


class CoarseTimers(Generic[T]):
    """Due times are rounded up by at most a thirty-second of the time they are away, so that many share one: what is
    guarded is then put into a dict, and taken out again, and that is all."""

    def __init__(self) -> None:
        self._due: dict[float, dict[T, None]] = {}
        self._heap: list[float] = []
        self._grains: dict[float, float] = {}

    def add(self, guarded: T, seconds: float, now: float) -> float:
        """The time it is due, by which it can be discarded."""
        grain = self._grains.get(seconds)
        if grain is None:
            if len(self._grains) >= 1024:
                self._grains.clear()
            grain = self._grains[seconds] = 2.0 ** ceil(log2(seconds) - 6)
        due = ceil((now + seconds) / grain) * grain
        group = self._due.get(due)
        if group is None:
            group = self._due[due] = {}
            heappush(self._heap, due)
        group[guarded] = None
        return due

    def discard(self, guarded: T, due: float) -> None:
        group = self._due.get(due)
        if group is not None:
            group.pop(guarded, None)
            if not group:
                group.clear()  # an empty dict keeps the room it has had

    def overdue(self, now: float) -> list[T]:
        """What is due; it is not guarded any more."""
        found: list[T] = []
        while self._heap and self._heap[0] <= now:
            found += self._due.pop(heappop(self._heap))
        return found

    def next_due(self) -> float:
        """When to look again; nothing may be due then."""
        return self._heap[0] if self._heap else inf
