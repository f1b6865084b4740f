"""History of services: three rings of values of fixed size, for 5 minutes, an hour and a day.

Time is counted in slots of 2 seconds (`slot_of`). A ring has one row of values for each of its steps, which are one or
more slots. A service that does not move is not recorded: its next record, or a reading, fills the gap with rates of
zero and the last numbers of waiting and running jobs.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import isnan, nan
from typing import Final, NamedTuple

SLOT: Final = 2.0  # seconds
VALUES: Final = (
    "arrived",
    "done",
    "undone",
    "waiting",
    "running",
    "wait50",
    "wait95",
    "wait99",
    "run50",
    "run95",
    "run99",
)
WIDTH: Final = len(VALUES)
RATES: Final = 3  # the first values are rates; of these a longer step has the mean, of all others the maximum
WAITING: Final = VALUES.index("waiting")
RUNNING: Final = VALUES.index("running")
EMPTY: Final = array("f", [nan] * WIDTH)


class RingShape(NamedTuple):
    """Number of steps of a ring, and the slots in each."""

    steps: int
    slots: int


RANGES: Final = {"5m": RingShape(150, 1), "1h": RingShape(180, 10), "24h": RingShape(180, 240)}


def slot_of(now: float) -> int:
    return int(now // SLOT)


class Ring:
    """Rows of values, one for each step; the row of a step replaces the one that is a whole ring older."""

    __slots__ = ("_last", "_rows", "shape")

    def __init__(self, shape: RingShape) -> None:
        self.shape = shape
        self._rows = array("f", EMPTY * shape.steps)
        self._last = -1  # the newest step; -1: none

    def record(self, slot: int, row: Sequence[float]) -> None:
        """Add the values of one slot. Slots must rise."""
        step = slot // self.shape.slots
        self.fill(step)
        rows, at = self._rows, step % self.shape.steps * WIDTH
        if self.shape.slots == 1:
            rows[at : at + WIDTH] = array("f", row)
            return
        for index in range(RATES):
            rows[at + index] += row[index]  # a sum; `column` divides it
        for index in range(RATES, WIDTH):
            value = row[index]
            if not isnan(value) and not rows[at + index] > value:  # also replaces NaN
                rows[at + index] = value

    def fill(self, step: int) -> None:
        """Make this step the newest. Steps without a record have no jobs that arrived or ended."""
        if self._last < 0:
            self._last = step - 1
        if step <= self._last:
            return
        rows, steps = self._rows, self.shape.steps
        last = self._last % steps * WIDTH
        waiting, running = rows[last + WAITING], rows[last + RUNNING]
        still = array("f", [0.0, 0.0, 0.0, waiting, running, *([nan] * (WIDTH - RUNNING - 1))])
        for each in range(max(self._last + 1, step - steps + 1), step + 1):
            at = each % steps * WIDTH
            rows[at : at + WIDTH] = still
        # The maxima of the newest step are those of its own records.
        at = step % steps * WIDTH
        rows[at + WAITING] = rows[at + RUNNING] = nan
        self._last = step

    def carry(self, step: int, waiting: float, running: float) -> None:
        """Make this step the newest: nothing has moved since the last record."""
        if step > self._last:
            self.fill(step)
            at = step % self.shape.steps * WIDTH
            self._rows[at + WAITING], self._rows[at + RUNNING] = waiting, running

    def column(self, index: int, began: int, slot: int) -> list[float | None]:
        """Return one value of every step up to that of `slot`, oldest first. `began`: the slot before the first one."""
        steps, slots = self.shape
        newest = slot // slots
        found: list[float | None] = []
        for step in range(newest - steps + 1, newest + 1):
            first, last = max(step * slots, began + 1), min((step + 1) * slots - 1, slot)
            if first > last or step > self._last:
                found.append(None)
                continue
            value = self._rows[step % steps * WIDTH + index]
            if isnan(value):
                found.append(None)
            else:
                found.append(float(f"{value / (last - first + 1) if index < RATES else value:.4g}"))
        return found


class History:
    """The three rings of one service, or of several together."""

    __slots__ = ("_rings", "_running", "_waiting", "began", "moved_at")

    def __init__(self, slot: int) -> None:
        self.began = slot  # values are known from the next slot on
        self.moved_at = slot  # latest slot with a record
        self._waiting = self._running = 0.0
        self._rings = {name: Ring(shape) for name, shape in RANGES.items()}
        for ring in self._rings.values():
            ring.carry(slot // ring.shape.slots, 0.0, 0.0)

    def record(self, slot: int, row: Sequence[float], slots: int = 1) -> None:
        """Add the values of the slots that end with this one: those since the last sample, usually one."""
        for each in range(max(self.moved_at + 1, slot - slots + 1, slot - RANGES["24h"].slots), slot + 1):
            for ring in self._rings.values():
                ring.record(each, row)
        self.moved_at = max(self.moved_at, slot)
        self._waiting, self._running = row[WAITING], row[RUNNING]

    def series(self, range_name: str, names: Sequence[str], slot: int) -> dict[str, list[float | None]]:
        """Return these values of every step up to that of `slot`, oldest first."""
        ring = self._rings[range_name]
        ring.carry(slot // ring.shape.slots, self._waiting, self._running)
        return {name: ring.column(VALUES.index(name), self.began, slot) for name in names}
