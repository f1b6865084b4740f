"""Interface of an HTTP connection for the other modules of the server."""

from __future__ import annotations

from typing import Protocol


class TimedConnection(Protocol):
    """Implemented by `protocol.py:LimitedProtocol`."""

    def __hash__(self) -> int: ...

    def look(self, now: float, passed: float) -> None:
        """Check time-outs. `passed` is the time since the last check."""

    def forgive(self, gap: float) -> None:
        """Extend time-outs by a pause of the server (D13)."""

    def leave_reserve(self) -> None:
        """Close: newer connections need its place in the reserve."""

    def give_way(self) -> None:
        """Reject the body: it is the largest, and memory is short."""

    def end_if_revoked(self) -> bool:
        """Abort, if the principal of the connection or of its running request has lost its access."""

    def shutdown(self) -> None:
        """Close after the response of the running request, if there is one."""

    def abort(self) -> None:
        """Close now."""
