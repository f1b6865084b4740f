"""Settings of a broker in a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The cluster, and the name of this broker in it."""

    cluster: str
    broker: str
    release: str = ""
    max_payload: int = 64 << 20  # bytes of a result of another broker
    adopt_after: float = 10.0  # seconds without a word from a broker after which it is gone, and its shards are free
    access_digest: Callable[[], str] = lambda: ""  # equal for brokers with equal access tables
