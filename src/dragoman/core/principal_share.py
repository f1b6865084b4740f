"""The part of a principal's limits that this broker of a cluster may use."""

from __future__ import annotations

from typing import final


@final
class PrincipalShare:
    """Numbers that another broker has granted (`cluster/granter.py`). They hold while `is_granted`.

    Without a grant, no job of a principal with `max_running` starts here, and of its other limits this broker may use
    one of `parts`: as many as there are brokers.
    """

    __slots__ = (
        "batch",
        "batch_bytes",
        "is_granted",
        "moved",
        "parts",
        "peers",
        "rate",
        "running",
        "slots",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, parts: int = 1) -> None:
        self.is_granted = False
        self.parts = parts
        self.slots = 0  # jobs that may run at once, with those that have moved
        self.moved = 0  # running jobs that another broker has now, and that still count here
        self.rate = 0.0  # submits a second
        self.waiting = 0  # jobs that may wait
        self.waiting_bytes = 0
        self.batch = 0  # jobs that may wait with those of a batch
        self.batch_bytes = 0
        self.peers = 0  # connections
        self.running: dict[str, int] = {}  # running jobs by broker, as last heard

    def count_running(self, limit: int) -> int:
        """Return the number of its jobs that may run at this broker."""
        return max(0, min(limit, self.slots) - self.moved) if self.is_granted else 0

    def count(self, limit: int, granted: int) -> int:
        """Return the part of a count that this broker may use."""
        return max(0, min(limit, granted)) if self.is_granted else max(1, limit // self.parts)
