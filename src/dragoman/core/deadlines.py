"""Timers of jobs and workers: one heap of due times.

A timer does not decide. When it fires, the subject's current due time is computed, and a new timer is set if that is
later. So a heartbeat costs no heap work, and nothing expires by a due time that has moved since (R5). Each entry has
the number of its timer. An entry whose subject has fired, been disarmed or been armed earlier since is dead. Dead
entries are swept out before they outnumber the live ones three to one (I11).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from dragoman.core.infinity import inf

SWEEP_FLOOR: Final = 64


class Subject(Protocol):
    """An object with a timer."""

    alarm: float  # time of its next timer; inf: none
    alarm_number: int  # number of its entry in the heap


S = TypeVar("S", bound=Subject)


class Deadlines(Generic[S]):
    """A heap of timers, at most one live entry per subject."""

    __slots__ = ("_heap", "_number", "armed")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, S]] = []
        self._number = 0
        self.armed = 0  # subjects with a live entry

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, subject: S, due: float) -> None:
        """Set the subject's timer to `due`, unless it has an earlier one."""
        before = subject.alarm
        if due >= before:
            return
        self._number = number = self._number + 1
        subject.alarm = due
        subject.alarm_number = number
        heappush(self._heap, (due, number, subject))
        if before == inf:
            self.armed += 1
        elif len(self._heap) > SWEEP_FLOOR + 3 * self.armed:  # its former entry is dead
            self._sweep()

    def disarm(self, subject: S) -> None:
        if subject.alarm != inf:
            self.armed -= 1
            subject.alarm = inf
            subject.alarm_number = 0
            if len(self._heap) > SWEEP_FLOOR + 3 * self.armed:
                self._sweep()

    def due(self, now: float) -> Iterator[S]:
        """Yield every subject whose timer has fired. Each is disarmed first."""
        while self._heap and self._heap[0][0] <= now:  # read again each time: arming may sweep
            _, number, subject = heappop(self._heap)
            if subject.alarm_number == number:
                self.disarm(subject)
                yield subject

    def next(self) -> float:
        heap = self._heap
        while heap and heap[0][2].alarm_number != heap[0][1]:
            heappop(heap)
        return heap[0][0] if heap else inf

    def entries(self) -> Iterator[tuple[float, int, S]]:
        return iter(self._heap)

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].alarm_number == entry[1]]
        heapify(self._heap)
