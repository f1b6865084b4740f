"""Work that takes longer than one iteration may: it is done in slices, so that jobs pass meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar

from dragoman.operations.schemas import View

SLICE: Final = 0.003  # seconds of reading in one slice; with its last chunk, a slice stays below 5 ms
CHUNK: Final = 256  # rows between two looks at the clock

Row = TypeVar("Row")


class SlicedWork(Protocol):
    """Work that ends in a view."""

    def step(self, now: float) -> View | None:
        """Do one slice. Returns None if there is more to do."""


class Slices:
    """Work in progress, one slice of each in every iteration."""

    def __init__(self) -> None:
        self._works: list[tuple[SlicedWork, Callable[[View], None]]] = []

    @property
    def is_empty(self) -> bool:
        return not self._works

    def add(self, work: SlicedWork, done: Callable[[View], None]) -> None:
        """Begin in the next iteration. `done` receives the view."""
        self._works.append((work, done))

    def step(self, now: float) -> None:
        for entry in list(self._works):
            work, done = entry
            view = work.step(now)
            if view is not None:
                self._works.remove(entry)
                done(view)


class RowReader(Generic[Row]):
    """Reads rows, in each slice as many as there is time for. The collection that has them may change between slices:
    rows that were added or removed since the end of the first slice are not noticed."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = iter(rows)
        self._is_copy = False
        self.is_over = False
        self.most_left: int | None = None  # number of rows that the caller may still read; None: all

    def slice(self) -> Iterator[Row]:
        """Iterate over the rows of one slice. Afterwards `is_over` is true if these were the last."""
        until = perf_counter() + SLICE
        while True:
            chunk = list(islice(self._rows, CHUNK))
            yield from chunk
            if len(chunk) < CHUNK:
                self.is_over = True
                return
            if perf_counter() >= until:
                if not self._is_copy:
                    self._rows = iter(list(islice(self._rows, self.most_left)))
                    self._is_copy = True
                return
