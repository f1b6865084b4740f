"""Results that arrived before their jobs were restored (R107)."""

from __future__ import annotations

from dragoman.core.archive import OBJECT_BYTES
from dragoman.core.memory import MemoryAccount, Transit
from dragoman.core.model import Payload, Token


class EarlyResults:
    """Keeps results by token, as far as there is memory."""

    __slots__ = ("_bytes", "_memory", "_results")

    def __init__(self, memory: MemoryAccount) -> None:
        self._memory = memory
        self._bytes = 0
        self._results: dict[Token, Payload] = {}

    def keep(self, token: Token, result: Payload) -> bool:
        """Keep a result. False: there is no room for it, or one with this token is kept already."""
        cost = len(result) + OBJECT_BYTES
        if token in self._results or cost > self._memory.room():
            return False
        self._results[token] = result
        self._count(cost)
        return True

    def take(self, token: Token) -> Payload | None:
        result = self._results.pop(token, None)
        if result is not None:
            self._count(-len(result) - OBJECT_BYTES)
        return result

    def clear(self) -> int:
        """Drop all results after the last job was restored. Returns the number dropped."""
        count = len(self._results)
        self._results.clear()
        self._count(-self._bytes)
        return count

    def _count(self, change: int) -> None:
        self._bytes += change
        self._memory.set_transit(Transit.EARLY_RESULTS, self._bytes)
