"""The shard of a background job, in the last byte of its id and of the tokens of its attempts.

Any broker can route a question by the id of a job, and a result by its token, without a table. Everything else of an id
and of a token stays random, and the layout of UUIDv7 is kept.
"""

from __future__ import annotations

from typing import Final

CALL: Final = 255  # of calls: they are in nobody's log
MOST_SHARDS: Final = 250


def shard_of(id: bytes) -> int:
    """Return the shard of a job or an attempt, or CALL."""
    return id[-1]


def with_shard(id: bytes, shard: int) -> bytes:
    """Return this id or token in another shard."""
    return id[:-1] + bytes((shard,))


def home_of(id: bytes, shards: int) -> int | None:
    """Return the shard of a job or a group with this id, of so many shards; None: it is a call, in nobody's log.

    Brokers make ids whose last byte is the number of their shard. A client may choose the id of a job or a group, and
    does not know how many shards there are: any last byte has a shard.
    """
    last = id[-1]
    return last % shards if last < MOST_SHARDS else None
