"""Reports how many rows of a store have been read, for a progress bar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import apsw

from dragoman.store.sealing import Progress

EVERY = 500  # rows between two reports

T = TypeVar("T")


def no_progress(done: int, total: int) -> None:
    """Report nothing."""


class RowCounter:
    """Counts the rows of both tables of a file as they are read."""

    def __init__(self, connection: apsw.Connection, progress: Progress) -> None:
        self._progress = progress
        self._done = 0
        try:
            self._total: int = connection.execute("SELECT (SELECT count(*) FROM job) + (SELECT count(*) FROM fate)").get
        except apsw.Error:  # a damaged table has no number of rows
            self._total = 0

    def counted(self, rows: Iterable[T]) -> Iterator[T]:
        """The same rows. Each 500 of them are reported, and the end."""
        for row in rows:
            self._done += 1
            if self._done % EVERY == 0:
                self._progress(self._done, self._total)
            yield row
        self._progress(self._done, self._total)
