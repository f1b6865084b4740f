"""A diary that remembers nothing: every save is done at once. For calls, tests, and `--data memory`."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.core.effects import Erase, Save


class MemoryDiary:
    def apply(self, entries: list[Save | Erase], done: Callable[[int, str | None], None]) -> None:
        numbers = [entry.number for entry in entries if isinstance(entry, Save)]
        if numbers:
            done(numbers[-1], None)

    def close(self) -> None:
        pass
