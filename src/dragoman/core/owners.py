"""Owners of jobs and workers: a principal behind one connection, or behind one remote address (R29, L8).

Limits of a caller count for each owner, so that one of many programs of a principal cannot use up what all may have.
Limits of a principal count for all of its owners together.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final

from dragoman.core.policy import Policy
from dragoman.core.rights import Principal

SWEEP_FLOOR: Final = 64


def network_of(address: str) -> str:
    """Return the key under which limits count an address: a machine with IPv6 has all addresses of its /64 network.

    Addresses of a link (fe80::) are those of different machines. Other texts are returned as they are.
    """
    return _ipv6_network(address) if ":" in address else address


@lru_cache(maxsize=4096)
def _ipv6_network(text: str) -> str:
    try:
        address = IPv6Address(text)
    except ValueError:  # not an address, such as the label of a broker
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    if address.is_loopback or address.is_link_local:
        return text
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


class Owner:
    """A principal on one connection or address, and the counts of its jobs and service names there."""

    __slots__ = ("address", "bytes", "connections", "is_limited", "jobs", "label", "names", "principal")

    def __init__(
        self, principal: Principal, label: str = "this connection", *, is_limited: bool = True, address: str = ""
    ) -> None:
        self.principal = principal
        self.label = label  # subject of the error message that refuses a job
        self.address = address  # machine, or user on this machine; empty: this machine, or not known
        self.is_limited = is_limited  # the limits of a caller apply; they do not inside this program
        self.connections = 0  # open connections with this owner
        self.jobs = 0  # jobs accepted and not ended
        self.bytes = 0  # their payloads in memory
        self.names = 0  # services that exist only because of these jobs, and that no worker has offered

    def enter(self) -> None:
        """Count a connection."""
        self.connections += 1
        self.principal.peers += 1

    def leave(self) -> None:
        self.connections -= 1
        self.principal.peers -= 1

    def exceeds_bytes(self, policy: Policy, of_service: int, size: int) -> bool:
        """True if a payload of this size exceeds the limit of its caller, or of its service (L24)."""
        if policy.max_bytes_per_service and of_service + size > policy.max_bytes_per_service:
            return True
        return policy.max_bytes_per_caller > 0 and self.is_limited and self.bytes + size > policy.max_bytes_per_caller

    @property
    def is_used(self) -> bool:
        return self.connections > 0 or self.jobs > 0


class Owners:
    """Owners of remote addresses. Unused ones are removed from time to time."""

    __slots__ = ("_by_address", "_of_stored", "_sweep_at")

    def __init__(self) -> None:
        self._by_address: dict[tuple[str, str], Owner] = {}
        self._of_stored: dict[tuple[str, str], Owner] = {}
        self._sweep_at = SWEEP_FLOOR

    def __len__(self) -> int:
        return len(self._by_address)

    def at(self, address: str, principal: Principal, label: str = "") -> Owner:
        """Return the owner that all connections of this principal and remote address share."""
        address = network_of(address)
        key = (address, principal.name)
        owner = self._by_address.get(key)
        if owner is None:
            if len(self._by_address) >= self._sweep_at:
                self._by_address = {each: owner for each, owner in self._by_address.items() if owner.is_used}
                self._sweep_at = SWEEP_FLOOR + 2 * len(self._by_address)
            owner = self._by_address[key] = Owner(principal, label or f"address {address}", address=address)
        return owner

    def of_stored(self, principal: Principal, address: str = "") -> Owner:
        """Return the owner of jobs of an earlier run. Limits of a caller do not apply: they were accepted."""
        key = (principal.name, address)
        owner = self._of_stored.get(key)
        if owner is None:
            owner = self._of_stored[key] = Owner(principal, is_limited=False, address=address)
        return owner
