"""What bodies that are under way may cost together, over all connections of a server (R17, L6)."""

from __future__ import annotations

from dragoman.http.connection import Connection
from dragoman.http.framing import RequestError


class BodyBudget:
    def __init__(self, max_memory: int) -> None:
        self.total = 0
        self._max_memory = max_memory
        self._held: dict[Connection, int] = {}

    def grow(self, connection: Connection, size: int) -> Connection | None:
        """So much more of a body that is not whole has come. Whose body has to go, if all are too much."""
        self.total += size
        self._held[connection] = self._held.get(connection, 0) + size
        if self.total <= self._max_memory:
            return None
        return max(self._held, key=self._held.__getitem__)

    def forget(self, connection: Connection) -> None:
        """It is whole, or given up."""
        self.total -= self._held.pop(connection, 0)

    def fault(self) -> RequestError:
        detail = f"Bodies that are under way take too much, and this is the largest: max_memory is {self._max_memory}."
        return RequestError(503, "busy", "Busy", detail)
