"""Reads the items of a recording in order, and compares them with what the replay does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from dragoman.recording.file import RecordingError
from dragoman.recording.items import CLOCK, DIGEST, JOURNAL, STRAY, Item
from dragoman.recording.journal import entry_text


class Finished(BaseException):
    """The recording has no more items. Not an Exception, because the runner logs those and continues."""


class Diverged(BaseException):
    """The replay differs from the recording. Not an Exception, as above."""


class ItemReader:
    """The items of a recording. `handle` executes an input that came during another one."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items: Iterator[Item] = (item for item in items if item[0] != DIGEST)
        self.handle: Callable[[Item], None] = lambda item: None
        self.count = 0  # items read
        self.now = 0.0  # the last time that was read
        self.began: float | None = None  # the first one

    @property
    def place(self) -> str:
        """The place of the last item, for messages."""
        seconds = self.now - self.began if self.began is not None else 0.0
        return f"item {self.count}, {seconds:.3f} s after the start"

    def next(self) -> Item:
        """Return the next item. Raises Finished."""
        item = next(self._items, None)
        if item is None:
            raise Finished
        self.count += 1
        if item[0] == CLOCK:
            self.now = item[1]
            if self.began is None:
                self.began = self.now
        return item

    def next_input(self) -> Item:
        """Return the next input. Reads that belong to none are for the log, and are skipped."""
        while (item := self.next())[0] in STRAY:
            pass
        return item

    def expect(self, kind: str, *facts: Any) -> Item:
        """Return the next item, without its kind and these facts. Raises Diverged if it is another one."""
        item = self.next()
        if item[: 1 + len(facts)] != (kind, *facts):
            raise self.diverged(item, (kind, *facts))
        return item[1 + len(facts) :]

    def until(self, kind: str) -> Item:
        """Execute inputs until an item of this kind, and return it without its kind."""
        while (item := self.next_input())[0] != kind:
            self.handle(item)
        return item[1:]

    def peek(self) -> Item | None:
        """Return the next item, which is read again later, or None at the end."""
        item = next(self._items, None)
        if item is not None:
            self._items = chain([item], self._items)
        return item

    def diverged(self, recorded: Item, replayed: Item) -> Diverged:
        return Diverged(f"{self.place}: the recording has {_shown(recorded)}; the replay has {_shown(replayed)}")


def _shown(item: Item) -> str:
    if item[0] == JOURNAL:
        return f"“{entry_text(item[1:])}”"
    facts = ", ".join(_fact(each) for each in item[1:4])
    return f"“{item[0]} {facts}”" if facts else f"“{item[0]}”"


def _fact(fact: Any) -> str:
    return fact.hex()[:32] if isinstance(fact, bytes) else str(fact)[:60]


def check_begin(item: Item, kind: str) -> dict[str, Any]:
    """Return the facts of the first item. Raises RecordingError."""
    if item[0] != kind or not isinstance(item[1], dict):
        raise RecordingError("the recording does not begin with the settings of a broker")
    return item[1]
