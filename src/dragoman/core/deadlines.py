"""One heap of due times.

An entry is a reminder, not a verdict: when it comes up, its subject is asked what is due *now*, and sets a new reminder
if that is later. So a life sign costs no heap work at all, and nothing can expire by a time that has since moved (R5).
Each entry carries the number of the reminder that set it; one whose subject has been reminded, disarmed or armed
earlier since then is dead, and dead entries are swept out before they outnumber the living three to one (I11).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from dragoman.core.infinity import inf

SWEEP_FLOOR: Final = 64


class Subject(Protocol):
    alarm: float  # when it is reminded next; inf = not at all
    alarm_number: int  # which entry of the heap that is


S = TypeVar("S", bound=Subject)


class Deadlines(Generic[S]):
    __slots__ = ("_heap", "_number", "armed")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, S]] = []
        self._number = 0
        self.armed = 0  # subjects with a living entry

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, subject: S, due: float) -> None:
        """See that the subject is reminded at `due` or earlier."""
        before = subject.alarm
        if due >= before:
            return
        self._number = number = self._number + 1
        subject.alarm = due
        subject.alarm_number = number
        heappush(self._heap, (due, number, subject))
        if before == inf:
            self.armed += 1
        elif len(self._heap) > SWEEP_FLOOR + 3 * self.armed:  # the entry that it had is dead
            self._sweep()

    def disarm(self, subject: S) -> None:
        if subject.alarm != inf:
            self.armed -= 1
            subject.alarm = inf
            subject.alarm_number = 0
            if len(self._heap) > SWEEP_FLOOR + 3 * self.armed:
                self._sweep()

    def due(self, now: float) -> Iterator[S]:
        """Every subject whose reminder has come up. Each is disarmed before it is given."""
        while self._heap and self._heap[0][0] <= now:  # read anew each time: arming may sweep
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
