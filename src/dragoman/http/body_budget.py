"""Memory limit for unfinished request bodies, over all connections of a server (R17, L6)."""

from __future__ import annotations

from dragoman.http.connection import TimedConnection
from dragoman.http.framing import RequestError


class BodyBudget:
    """Counts the bytes of unfinished bodies."""

    def __init__(self, max_memory: int) -> None:
        self.total = 0
        self._max_memory = max_memory
        self._held: dict[TimedConnection, int] = {}

    def grow(self, connection: TimedConnection, size: int) -> TimedConnection | None:
        """Add bytes of an unfinished body. Returns the connection with the largest body if the limit is exceeded."""
        self.total += size
        self._held[connection] = self._held.get(connection, 0) + size
        if self.total <= self._max_memory:
            return None
        return max(self._held, key=self._held.__getitem__)

    def forget(self, connection: TimedConnection) -> None:
        """Remove a body that is complete or abandoned."""
        self.total -= self._held.pop(connection, 0)

    def fault(self) -> RequestError:
        detail = f"Unfinished bodies exceed max_memory {self._max_memory}, and this is the largest; retry later."
        return RequestError(503, "busy", "Busy", detail)
