"""The layout of a cluster's logs: how many shards, how many replicas, and the identity that all of them have.

`dragoman cluster init` writes it into the metadata of every stream, once. A broker reads it there, and never changes it
(R116).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from dragoman.cluster.jetstream import StreamConfig, StreamState
from dragoman.cluster.log import IDENTITY
from dragoman.cluster.shard_bytes import MOST_SHARDS

SHARDS: Final = "dragoman_shards"
REPLICAS: Final = "dragoman_replicas"
SYNCED: Final = "dragoman_synced"  # "yes": the operator declares that every server syncs before it acknowledges
DEFAULT_SHARDS: Final = 12

Durability = Literal["single", "replicated", "durable"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Facts that all streams of a cluster have in common."""

    identity: str
    shards: int
    replicas: int
    is_synced: bool = False

    @property
    def durability(self) -> Durability:
        """The meaning of the acknowledgement of a background job."""
        if self.replicas < 3:
            return "single"
        return "durable" if self.is_synced else "replicated"

    def metadata(self) -> tuple[tuple[str, str], ...]:
        facts = [(IDENTITY, self.identity), (SHARDS, str(self.shards)), (REPLICAS, str(self.replicas))]
        return (*facts, (SYNCED, "yes")) if self.is_synced else tuple(facts)


def stream_name(cluster: str, shard: int) -> str:
    """Return the name of the stream that is the log of a shard."""
    return f"DGM_{cluster}_{shard:02}"


def log_subject(cluster: str, shard: int) -> bytes:
    return f"dgm.{cluster}.log.{shard:02}".encode()


def stream_config(cluster: str, shard: int, layout: Layout, max_bytes: int = -1) -> StreamConfig:
    return StreamConfig(
        stream_name(cluster, shard),
        (log_subject(cluster, shard).decode(),),
        layout.replicas,
        max_bytes,
        layout.metadata(),
    )


def layout_of(found: StreamState) -> Layout | None:
    """Read the layout from a stream; None: it is no log that `cluster init` made."""
    facts = found.metadata
    shards, replicas = facts.get(SHARDS, ""), facts.get(REPLICAS, "")
    if not (facts.get(IDENTITY) and shards.isdigit() and replicas.isdigit() and 0 < int(shards) <= MOST_SHARDS):
        return None
    return Layout(facts[IDENTITY], int(shards), int(replicas), facts.get(SYNCED) == "yes")
