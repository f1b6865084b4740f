"""Results that arrived before their jobs were restored (R107)."""

from __future__ import annotations

from dragoman.core.archive import OBJECT_BYTES
from dragoman.core.model import Payload, Token
from dragoman.core.rights import WORK, Principal


class EarlyResults:
    """Keeps results by token, up to a limit in bytes."""

    __slots__ = ("_bytes", "_max_bytes", "_results")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._results: dict[Token, tuple[Payload, Principal]] = {}

    def keep(self, token: Token, result: Payload, principal: Principal) -> bool:
        """Keep a result of this principal's worker. False: there is no room for it, or one with this token is kept."""
        cost = len(result) + OBJECT_BYTES
        if token in self._results or self._bytes + cost > self._max_bytes:
            return False
        self._results[token] = result, principal
        self._bytes += cost
        return True

    def take(self, token: Token, service: str) -> Payload | None:
        """Return the result with this token, if its principal may work for the service (R178)."""
        found = self._results.pop(token, None)
        if found is None:
            return None
        result, principal = found
        self._bytes -= len(result) + OBJECT_BYTES
        return result if principal.may(WORK, service) else None

    def clear(self) -> int:
        """Drop all results after the last job was restored. Returns the number dropped."""
        count = len(self._results)
        self._results.clear()
        self._bytes = 0
        return count
