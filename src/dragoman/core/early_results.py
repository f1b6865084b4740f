"""Results that arrived before their jobs were restored (R107)."""

from __future__ import annotations

from dragoman.core.archive import OBJECT_BYTES
from dragoman.core.memory import MemoryAccount, Transit
from dragoman.core.model import Payload, Token
from dragoman.core.rights import WORK, Principal


class EarlyResults:
    """Keeps results by token, as far as there is memory."""

    __slots__ = ("_bytes", "_memory", "_results")

    def __init__(self, memory: MemoryAccount) -> None:
        self._memory = memory
        self._bytes = 0
        self._results: dict[Token, tuple[Payload, Principal]] = {}

    def keep(self, token: Token, result: Payload, principal: Principal) -> bool:
        """Keep a result of this principal's worker. False: there is no room for it, or one with this token is kept."""
        cost = len(result) + OBJECT_BYTES
        if token in self._results or cost > self._memory.room():
            return False
        self._results[token] = result, principal
        self._count(cost)
        return True

    def take(self, token: Token, service: str) -> Payload | None:
        """Return the result with this token, if its principal may work for the service (R178)."""
        found = self._results.pop(token, None)
        if found is None:
            return None
        result, principal = found
        self._count(-len(result) - OBJECT_BYTES)
        return result if principal.may(WORK, service) else None

    def clear(self) -> int:
        """Drop all results after the last job was restored. Returns the number dropped."""
        count = len(self._results)
        self._results.clear()
        self._count(-self._bytes)
        return count

    def _count(self, change: int) -> None:
        self._bytes += change
        self._memory.set_transit(Transit.EARLY_RESULTS, self._bytes)
