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
    access_digest: Callable[[], str] = lambda: ""  # equal for brokers with equal access tables
