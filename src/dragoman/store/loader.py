"""Loads jobs of an earlier run: one batch at a time, each after the previous one was consumed."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from dragoman.core.restore import StoredJob
from dragoman.store import statements
from dragoman.store.errors import InvalidRow
from dragoman.store.rows import RowDecoder


def _nothing(*_: object) -> None:
    pass


class Loader:
    """Reads batches of stored jobs in order of their numbers."""

    def __init__(self, connection: apsw.Connection, wall_offset: Callable[[], float], batch: int) -> None:
        self.last = statements.last_number(connection)  # later jobs are of this run
        self.is_loading = False
        self.is_due = False  # the next batch may be read
        self.deliver: Callable[[list[StoredJob]], None] = _nothing
        self.finished: Callable[[], None] = _nothing
        self._connection = connection
        self._wall_offset = wall_offset
        self._batch = batch
        self._after = 0
        self._reader = RowDecoder()

    def begin(self, deliver: Callable[[list[StoredJob]], None], finished: Callable[[], None]) -> None:
        self.deliver, self.finished = deliver, finished
        self.is_loading = self.is_due = True

    def is_taken(self) -> None:
        self.is_due = self.is_loading

    def next_batch(self) -> list[StoredJob]:
        """Read the next batch. Empty at the end."""
        try:
            rows = statements.read_batch(self._connection, self._after, self.last, self._batch)
        except UnicodeDecodeError as error:
            raise InvalidRow(f"a job after number {self._after} has invalid text: {error.reason}") from error
        offset = self._wall_offset()
        batch = [self._reader.kept(row, offset) for row in rows]
        self.is_due = False
        self.is_loading = bool(batch)
        if batch:
            self._after = batch[-1].number
        return batch
