"""Limits of principals where the access tables of brokers differ: the lowest holds at every broker.

Gossip carries a digest of each table. A broker that hears another digest than its own sends the limits of its table to
that broker, once. Brokers with equal tables send nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from dragoman.cluster.peers import Peer
from dragoman.cluster.records import TableLimit, TableLimits
from dragoman.core.broker import Broker
from dragoman.core.rights import NO_LIMITS, PrincipalLimits


@final
class AccessTables:
    """Exchanges the limits of access tables that differ."""

    def __init__(self, broker: Broker, digest: Callable[[], str], request_flush: Callable[[], None]) -> None:
        """`digest`: of the access table of this broker."""
        self._broker = broker
        self._digest = digest
        self._request_flush = request_flush

    def heard(self, peer: Peer, access: str, now: float) -> None:
        """Compare the tables. `access`: the digest of the other broker's table."""
        own = self._digest()
        if peer.tables == (own, access):
            return
        peer.tables = own, access
        if own == access:
            self._limit(peer.name, {}, now)
            return
        peer.link.add(TableLimits(own, _limits_in(self._broker)))
        self._request_flush()

    def received(self, peer: Peer, record: TableLimits, now: float) -> None:
        """Take the limits of another broker's table."""
        if record.access != self._digest():
            self._limit(peer.name, {name: _read(each) for name, each in record.limits.items()}, now)

    def gone(self, peer: Peer, now: float) -> None:
        self._limit(peer.name, {}, now)

    def _limit(self, broker: str, table: dict[str, PrincipalLimits], now: float) -> None:
        for principal in self._broker.principals.limit_elsewhere(broker, table):
            self._broker.dispatch.unblock(principal, now)


def _limits_in(broker: Broker) -> dict[str, TableLimit]:
    listed = [each for each in broker.principals if each.is_listed and each.own_limits != NO_LIMITS]
    return {each.name: _write(each.own_limits) for each in listed}


def _write(limits: PrincipalLimits) -> TableLimit:
    return TableLimit(
        limits.max_waiting,
        limits.max_waiting_bytes,
        limits.max_running,
        limits.max_payload,
        limits.max_rate,
        limits.max_peers,
    )


def _read(limit: TableLimit) -> PrincipalLimits:
    """Return the limits. Values that are not allowed, as those of a later release may be, are left out."""
    rate = limit.max_rate
    return PrincipalLimits(
        _count(limit.max_waiting),
        _count(limit.max_waiting_bytes),
        _count(limit.max_running),
        _count(limit.max_payload),
        rate if rate is not None and 0.0 < rate < 1e300 else None,
        _count(limit.max_peers),
    )


def _count(value: int | None) -> int | None:
    return value if value is not None and value >= 1 else None
