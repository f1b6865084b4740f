"""Coarse timers for many time-outs that almost never fire."""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil, inf, log2
from typing import Generic, TypeVar

T = TypeVar("T")


class CoarseTimers(Generic[T]):
    """Groups items by due time. Due times are rounded up by at most 1/32 of the delay, so that many items share one;
    adding and discarding an item are then dict operations."""

    def __init__(self) -> None:
        self._due: dict[float, dict[T, None]] = {}
        self._heap: list[float] = []
        self._steps: dict[float, float] = {}

    def add(self, item: T, seconds: float, now: float) -> float:
        """Add an item and return its due time, which `discard` needs."""
        step = self._steps.get(seconds)
        if step is None:
            if len(self._steps) >= 1024:
                self._steps.clear()
            step = self._steps[seconds] = 2.0 ** ceil(log2(seconds) - 6)
        due = ceil((now + seconds) / step) * step
        group = self._due.get(due)
        if group is None:
            group = self._due[due] = {}
            heappush(self._heap, due)
        group[item] = None
        return due

    def discard(self, item: T, due: float) -> None:
        group = self._due.get(due)
        if group is not None:
            group.pop(item, None)
            if not group:
                group.clear()  # frees memory: an empty dict keeps its table

    def overdue(self, now: float) -> list[T]:
        """Remove and return the items that are due."""
        found: list[T] = []
        while self._heap and self._heap[0] <= now:
            found += self._due.pop(heappop(self._heap))
        return found

    def next_due(self) -> float:
        """Return the time of the next check; nothing may be due then."""
        return self._heap[0] if self._heap else inf
