"""The first rows of a list in some order, after a cursor, without sorting the whole list.

A cursor is the text `time/key/name` of the last row of a page. Keys that depend on the time, such as the seconds since
the last message, are computed for the time of the first page on every later page: otherwise rows would move from page
to page while a client reads. In a cluster the time is left out, because the clocks of brokers differ: the cursor is
`/key/name`, and keys are computed for the present.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from dragoman.operations.schemas import OperationError

# A key, a number or a text, and a name or number. Rows with a lower key come first, then those with a lower name.
Rank = tuple[Any, Any]
Row = TypeVar("Row")


class Cursor:
    """Position of a row in an ordered list. `at`: the time for which keys are computed."""

    __slots__ = ("at", "rank")

    def __init__(self, at: float, rank: Rank | None = None) -> None:
        self.at = at
        self.rank = rank  # None: before the first row

    def text_after(self, rank: Rank) -> str:
        """Return the cursor of a row of the same list, as text."""
        key, name = rank
        return f"{self.at!r}/{key if isinstance(key, str) else repr(key)}/{name}"


def read_cursor(text: str | None, now: float, *, has_text_keys: bool, has_numbers: bool) -> Cursor:
    """Parse the cursor of a request. `has_text_keys`: keys are text; `has_numbers`: names are numbers, else keys are
    numbers or empty, because both may contain slashes. Raises OperationError."""
    if text is None:
        return Cursor(now)
    try:
        at, rest = text.split("/", 1)
        key, name = rest.rsplit("/", 1) if has_numbers else rest.split("/", 1)
        rank: Rank = (key if has_text_keys else float(key), int(name) if has_numbers else name)
        return Cursor(float(at) if at else now, rank)
    except ValueError:
        raise OperationError(
            "not found",
            f"after {text[:64]!r} is no position in this list; send the `after` of the previous page and the same sort",
        ) from None


class FirstRows(Generic[Row]):
    """Keeps the first `limit` rows after a cursor. Memory and time do not depend on the rows that are left out."""

    __slots__ = ("_cursor", "_limit", "_rows")

    def __init__(self, limit: int | None, cursor: Cursor) -> None:
        self._limit = limit
        self._cursor = cursor
        self._rows: list[tuple[Rank, Row]] = []

    def offer(self, rank: Rank, row: Row) -> None:
        after = self._cursor.rank
        if after is not None and not after < rank:
            return
        self._rows.append((rank, row))
        if self._limit is not None and len(self._rows) > 2 * self._limit + 64:
            self._shorten(self._limit + 1)

    def page(self) -> tuple[list[Row], str | None]:
        """Return the rows, and the cursor of the next page if there are more."""
        limit = len(self._rows) if self._limit is None else self._limit
        self._shorten(limit + 1)
        page = self._rows[:limit]
        has_more = len(self._rows) > limit
        return [row for _, row in page], self._cursor.text_after(page[-1][0]) if has_more else None

    def _shorten(self, length: int) -> None:
        self._rows.sort(key=_rank_of)
        del self._rows[length:]


def _rank_of(entry: tuple[Rank, object]) -> Rank:
    return entry[0]
