"""Pauses of services, which hold at every broker of a cluster.

They are set at the broker that has shard 0, and are in its log. It tells all paused services with its gossip, and the
others pause and resume as it says. A broker that hears no owner of shard 0 keeps what it heard last.
"""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.core.broker import Broker


class SharedPauses:
    """The pauses of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._last: Mapping[str, str] | None = None  # as they were heard

    def told(self) -> dict[str, str]:
        """Return who has paused each paused service: for the gossip of the owner of shard 0."""
        self._last = None
        return {each.name: each.paused_by for each in self._broker.worker_registry.services.values() if each.paused}

    def heard(self, pauses: Mapping[str, str], now: float) -> None:
        """Pause and resume services as the owner of shard 0 says."""
        if pauses == self._last:
            return
        self._last = pauses
        services = self._broker.worker_registry.services
        for name in [each.name for each in services.values() if each.paused and each.name not in pauses]:
            self._broker.operator.resume(name, now)
        for name, by in pauses.items():
            known = services.get(name)
            if known is None or not known.paused or known.paused_by != by:
                self._broker.operator.pause(name, by, now)
