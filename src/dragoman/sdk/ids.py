"""Ids: those that clients create (job ids in UUIDv7 layout, keys, session secrets), and those of handles."""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.sdk.job_names import JobNames

POOL = 512  # ids whose random bytes are read at once: one system call per id would dominate the cost
AUTOMATIC_KEY = "auto-"  # start of idempotency keys that a client made
MOST_SHARDS = 250  # of a cluster
RANDOM_BYTES = 10  # random bytes of an id; six of their bits are fixed by the UUIDv7 layout

_DRAWN = int.from_bytes(bytes.fromhex("0fff3fffffffffffffff") * POOL)
_LAYOUT = int.from_bytes(bytes.fromhex("70008000000000000000") * POOL)
_pool: deque[bytes] = deque()
_batch_byte = bytes((secrets.randbelow(MOST_SHARDS),))


def new_job_id() -> bytes:
    """Return 48 bits of milliseconds, then random bits except six fixed ones. May be called from any thread."""
    try:
        random_bytes = _pool.pop()
    except IndexError:
        random_bytes = _draw()
    return (time.time_ns() // 1_000_000).to_bytes(6) + random_bytes


def new_batch_id() -> bytes:
    """Return an id for a job or a group of a batch. All that this process makes end with the same byte: in a cluster,
    that byte is their shard, and a batch is accepted as a whole because it is in one shard."""
    return new_job_id()[:-1] + _batch_byte


def new_key() -> str:
    """Return an idempotency key for a job whose caller chose none."""
    return AUTOMATIC_KEY + secrets.token_hex(16)


def ids_of(names: JobNames) -> tuple[str, ...]:
    """Return the ids of jobs and groups. Raises TypeError for a single one in place of a list."""
    if isinstance(names, str):
        raise TypeError(f"after={names!r}: must be a list of job ids or handles; write after=[{names!r}]")
    return tuple([name if isinstance(name, str) else name.id for name in names])


def new_session() -> str:
    return secrets.token_hex(16)


def _draw() -> bytes:
    drawn = (int.from_bytes(os.urandom(RANDOM_BYTES * POOL)) & _DRAWN | _LAYOUT).to_bytes(RANDOM_BYTES * POOL)
    pieces = [drawn[at : at + RANDOM_BYTES] for at in range(0, len(drawn), RANDOM_BYTES)]
    _pool.extend(pieces[1:])
    return pieces[0]


# A forked child that used its parent's pool would create the same ids.
os.register_at_fork(after_in_child=_pool.clear)
