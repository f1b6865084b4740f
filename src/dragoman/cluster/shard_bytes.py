"""The shard of a background job, in the last byte of its id and of the tokens of its attempts.

Any broker can route a question by the id of a job, and a result by its token, without a table. Everything else of an id
and of a token stays random, and the layout of UUIDv7 is kept.

Ids that a broker makes end with the number of their shard; so do tokens, but a token has no zero byte, and ends with
`FIRST` for shard 0. Clients that choose ids themselves, for batches, may end
them with any byte below `MOST_SHARDS`: the remainder by the number of shards is the shard.
"""

from __future__ import annotations

from typing import Final

CALL: Final = 255  # of calls: they are in nobody's log
MOST_SHARDS: Final = 250
FIRST: Final = 254  # as in core/dispatch.py


def shard_of(id: bytes) -> int:
    """Return the shard of a job or an attempt, as its broker wrote it, or CALL."""
    return id[-1]


def shard_in(id: bytes, shards: int) -> int:
    """Return the shard of a job, a group or an attempt in a cluster of so many shards; -1: it is in none."""
    byte = id[-1]
    if byte == FIRST:
        return 0
    return byte % shards if byte < MOST_SHARDS else -1


def with_shard(id: bytes, shard: int) -> bytes:
    """Return this id or token in another shard."""
    return id[:-1] + bytes((shard,))
