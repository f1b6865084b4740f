"""Admission of connections: limits on the number of connections, in all and from one address (L7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.core.owners import network_of
from dragoman.core.recipients import Recipient
from dragoman.core.rights import ANYONE, Principal
from dragoman.core.shares import administers, has_share, share_problem

MIN_DIALLED: Final = 16  # connections that each broker side may always dial


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Limits of all connections together."""

    max_connections: int = 20_000
    max_connections_per_local_address: int = 10_000  # local
    max_connections_per_remote_address: int = 256
    max_accepts_per_second: int = 2_000  # new connections a second; more wait in the kernel's queue (R23)
    max_handshakes: int = 200  # a second, with CURVE, TLS or a token (R168)
    max_unauthenticated: int = 256  # connections whose handshake is in progress
    bad_messages: int = 20  # L23, in ten seconds
    late_iteration: float = 1.0  # D13


class Admission:
    """Counts accepted connections by address, of IPv6 by /64 network (R213), and dialled ones by broker side (R217)."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self._limits = limits
        self._addresses: dict[str, int] = {}
        self._dialled: dict[Recipient, int] = {}
        self._dials = 0

    def rejection_reason(
        self, address: str, is_local: bool, connected: int, principal: Principal | None, *, proves_more: bool
    ) -> str | None:
        """Return the reason to reject a new connection from this address, or None. `principal`: that of a local user;
        None: it is not known. `proves_more`: a handshake follows, and `has_share` is asked again after it."""
        limits, network = self._limits, network_of(address)
        per_address = limits.max_connections_per_local_address
        if not is_local:
            per_address = min(per_address, limits.max_connections_per_remote_address)
        if connected >= limits.max_connections:
            return f"{connected} connections are open, the maximum (max_connections)"
        # All users of this machine have one address over TCP: one that the kernel names counts for itself.
        own = principal.peers if principal is not None and principal.name != ANYONE else per_address
        if self._addresses.get(network, 0) >= per_address and own >= per_address:
            name = "max_connections_per_local_address" if is_local else "max_connections_per_remote_address"
            held = f"{self._addresses[network]} connections of {_subject(address, network)}"
            return f"{held} are open, the maximum ({name})"
        if not proves_more:
            return self.over_share(principal, address, connected)
        return None

    def over_share(self, principal: Principal | None, address: str, connected: int, own: int = 0) -> str | None:
        """Return the reason if a principal has its share of all connections, or an address without one (R254). `own`: 1
        if the connection is counted already."""
        if principal is None or principal.name == ANYONE:
            name, held, is_administrator = address, self._addresses.get(network_of(address), 0), False
        else:
            name, held, is_administrator = principal.name, principal.peers, administers(principal)
        most, taken, held = self._limits.max_connections, connected - own, held - own
        if has_share(most, taken, held, 1, is_administrator=is_administrator):
            return None
        return share_problem(name, held, taken, most, "connections", "max_connections")

    def enter(self, address: str) -> None:
        network = network_of(address)
        self._addresses[network] = self._addresses.get(network, 0) + 1

    def leave(self, address: str) -> None:
        network = network_of(address)
        self._addresses[network] -= 1
        if not self._addresses[network]:
            del self._addresses[network]

    # ---------------------------------------------------------------- dialled connections

    def dial_rejection(self, session: Recipient) -> str | None:
        """Return the reason to dial no more connections for this broker side, or None."""
        most = self._limits.max_connections // 2
        if self._dials < most or self._dialled.get(session, 0) < MIN_DIALLED:
            return None
        return f"{most} connections are dialled, the maximum (half of max_connections)"

    def dial(self, session: Recipient) -> None:
        self._dials += 1
        self._dialled[session] = self._dialled.get(session, 0) + 1

    def hang_up(self, session: Recipient) -> None:
        self._dials -= 1
        self._dialled[session] -= 1
        if not self._dialled[session]:
            del self._dialled[session]

    @property
    def addresses(self) -> int:
        """Number of addresses and networks with at least one connection."""
        return len(self._addresses)


def _subject(address: str, network: str) -> str:
    return "this address" if address == network else network
