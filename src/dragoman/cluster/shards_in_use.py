"""Finds the shards that cannot be without an owner."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.cluster.held_outcomes import HeldOutcomes
from dragoman.cluster.hub import Hub
from dragoman.core.broker import Broker


def shards_in_use(
    broker: Broker, hub: Hub, shard_of: Callable[[bytes], int], outcomes: HeldOutcomes
) -> dict[int, None]:
    """Return the shards of which an attempt runs, or an outcome is held here."""
    found = {shard_of(token): None for token in outcomes.tokens}
    for worker in broker.worker_registry.workers.values():
        for attempt in worker.running.values():
            number = shard_of(attempt.token)
            if number >= 0 and number not in found and hub.is_running(attempt):
                found[number] = None
    return found
