"""Owners: holders of the limits per caller (R29, L8).

Callers are not authenticated, so an owner is one connection, or all connections of one remote address.
"""

from __future__ import annotations

from typing import Final

SWEEP_FLOOR: Final = 64


class Owner:
    """Counts the jobs and service names of one caller."""

    __slots__ = ("connections", "jobs", "label", "names")

    def __init__(self, label: str = "this connection") -> None:
        self.label = label  # subject of the error message that refuses a job
        self.connections = 0  # open connections with this owner
        self.jobs = 0  # jobs accepted and not ended
        self.names = 0  # services that exist only because of these jobs, and that no worker has offered

    @property
    def is_used(self) -> bool:
        return self.connections > 0 or self.jobs > 0


class Owners:
    """Owners of remote addresses. Unused ones are removed from time to time."""

    __slots__ = ("_by_address", "_sweep_at")

    def __init__(self) -> None:
        self._by_address: dict[str, Owner] = {}
        self._sweep_at = SWEEP_FLOOR

    def __len__(self) -> int:
        return len(self._by_address)

    def at(self, address: str) -> Owner:
        """Return the owner that all connections of this remote address share."""
        owner = self._by_address.get(address)
        if owner is None:
            if len(self._by_address) >= self._sweep_at:
                self._by_address = {each: owner for each, owner in self._by_address.items() if owner.is_used}
                self._sweep_at = SWEEP_FLOOR + 2 * len(self._by_address)
            owner = self._by_address[address] = Owner(f"address {address}")
        return owner
