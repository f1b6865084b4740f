"""A connection of an HTTP server, as the server's other parts see it."""

from __future__ import annotations

from typing import Protocol


class Connection(Protocol):
    """Implemented by `guard.py:GuardedProtocol`."""

    def __hash__(self) -> int: ...

    def look(self, now: float, passed: float) -> None:
        """Judge who is late. `passed` is the time since the last look."""

    def forgive(self, gap: float) -> None:
        """The server stood still for so long: nobody is late for it (D13)."""

    def leave_reserve(self) -> None:
        """Newer connections need the place."""

    def give_way(self) -> None:
        """Others need the room that its body takes."""

    def shutdown(self) -> None:
        """Close when the running request, if there is one, has its response."""

    def abort(self) -> None:
        """Close now."""
