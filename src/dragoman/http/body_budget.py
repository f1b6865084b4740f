"""Memory limit for unfinished request bodies, over all connections of a server (R17, L6)."""

from __future__ import annotations

from dragoman.http.all_bodies import AllBodies, BodyHolder, largest_of_most
from dragoman.http.framing import RequestError


class BodyBudget:
    """Counts the bytes of unfinished bodies of one listener, and adds them to those of all listeners."""

    def __init__(self, max_memory: int, all_bodies: AllBodies) -> None:
        self.total = 0
        self._max_memory = max_memory
        self._all_bodies = all_bodies
        self._held: dict[BodyHolder, int] = {}

    def grow(self, connection: BodyHolder, size: int) -> BodyHolder | None:
        """Add bytes of an unfinished body. Returns the connection with the largest body if a limit is exceeded: of this
        listener, or of all listeners."""
        self.total += size
        self._held[connection] = self._held.get(connection, 0) + size
        largest = self._all_bodies.grow(connection, size)
        if self.total > self._max_memory:
            return largest_of_most(self._held)
        return largest

    def forget(self, connection: BodyHolder) -> None:
        """Remove a body that is complete or abandoned."""
        size = self._held.pop(connection, 0)
        if size:
            self.total -= size
            self._all_bodies.forget(connection)

    def count_unsent(self, change: int) -> None:
        """Count bytes of responses that wait for their clients to read."""
        self._all_bodies.count_unsent(change)

    def fault(self) -> RequestError:
        most = min(self._max_memory, self._all_bodies.memory.limit)
        detail = f"There is no memory for this body, the largest that is unfinished (max_memory {most}); retry later."
        return RequestError(503, "busy", "Busy", detail)
