"""Unfinished request bodies of all HTTP listeners together, and their unsent responses (L6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from dragoman.core.memory import MemoryAccount, Transit


class BodyHolder(Protocol):
    """A connection with an unfinished body."""

    @property
    def holder(self) -> str:
        """Holder of its place (`core/shares.py`)."""

    def give_way(self) -> None:
        """Reject the body, because memory is short."""


class AllBodies:
    """Counts the bytes of unfinished bodies in the memory account."""

    def __init__(self, memory: MemoryAccount) -> None:
        self.memory = memory
        self._held: dict[BodyHolder, int] = {}

    def grow(self, connection: BodyHolder, size: int) -> BodyHolder | None:
        """Add bytes of a body. Returns the connection with the largest body if there is no room."""
        self._held[connection] = self._held.get(connection, 0) + size
        self._count(size)
        if self.memory.room() >= 0:
            return None
        return largest_of_most(self._held)

    def forget(self, connection: BodyHolder) -> None:
        """Remove a body that is complete or abandoned."""
        size = self._held.pop(connection, 0)
        if size:
            self._count(-size)

    def count_unsent(self, change: int) -> None:
        """Count bytes of responses that wait for their clients to read."""
        self.memory.set_transit(Transit.RESPONSES, self.memory.transit[Transit.RESPONSES] + change)

    def _count(self, change: int) -> None:
        self.memory.set_transit(Transit.BODIES, self.memory.transit[Transit.BODIES] + change)


def largest_of_most(held: Mapping[BodyHolder, int]) -> BodyHolder:
    """Return the connection with the largest body, of the principal or address whose bodies take most: many small ones
    of one principal do not end a large one of another (R254)."""
    totals: Counter[str] = Counter()
    for each, size in held.items():
        totals[each.holder] += size
    return max(held, key=lambda each: (totals[each.holder], held[each]))
