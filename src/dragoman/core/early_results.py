"""Results that arrived before their jobs were restored (R107)."""

from __future__ import annotations

from dragoman.core.archive import OBJECT_BYTES
from dragoman.core.model import Payload, Token


class EarlyResults:
    """Keeps results by token, up to a limit in bytes."""

    __slots__ = ("_bytes", "_max_bytes", "_results")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._results: dict[Token, Payload] = {}

    def keep(self, token: Token, result: Payload) -> bool:
        """Keep a result. False: there is no room for it, or one with this token is kept already."""
        cost = len(result) + OBJECT_BYTES
        if token in self._results or self._bytes + cost > self._max_bytes:
            return False
        self._results[token] = result
        self._bytes += cost
        return True

    def take(self, token: Token) -> Payload | None:
        result = self._results.pop(token, None)
        if result is not None:
            self._bytes -= len(result) + OBJECT_BYTES
        return result

    def clear(self) -> int:
        """Drop all results after the last job was restored. Returns the number dropped."""
        count = len(self._results)
        self._results.clear()
        self._bytes = 0
        return count
