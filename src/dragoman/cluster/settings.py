"""Settings of a broker in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The cluster, the name of this broker in it, and the NATS servers."""

    cluster: str
    broker: str
    servers: Sequence[object]  # addresses that can be dialled
    release: str = ""
    max_payload: int = 64 << 20  # bytes of a result of another broker
    connection_limits: Any = None  # of the connection to NATS
    access_digest: Callable[[], str] = lambda: ""  # equal for brokers with equal access tables
