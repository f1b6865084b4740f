"""The order in which brokers take a shard that has no owner: the same at every broker that has heard the same gossip.

Brokers with fewer shards come first. Among equals, a hash of shard and broker decides (rendezvous hashing): it spreads
the shards of a dead broker over the others, and a broker that comes back does not move those of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b


def order(cluster: str, shard: int, counts: Mapping[str, int]) -> list[str]:
    """Return the brokers in the order in which they take a shard. `counts`: shards that each of them has."""
    return sorted(counts, key=lambda broker: (counts[broker], weight(cluster, shard, broker), broker))


def weight(cluster: str, shard: int, broker: str) -> int:
    """Return a number that is as good as random, and always the same; the lowest comes first."""
    text = f"{cluster}\0{shard}\0{broker}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def shard_of_key(owner: str, service: str, key: str, shards: int) -> int:
    """Return the shard of a background job with an idempotency key, the same at every broker: one core checks it."""
    digest = blake2b(digest_size=8)
    for part in (owner, service, key):
        text = part.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(4, "big"))
        digest.update(text)
    return int.from_bytes(digest.digest(), "big") % shards
