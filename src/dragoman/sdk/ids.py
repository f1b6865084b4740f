"""Names that a client makes up: job ids in UUIDv7 layout, and secrets that nobody guesses."""

from __future__ import annotations

import os
import secrets
import time
from collections import deque

POOL = 512  # ids for which chance is drawn at once: asking the kernel for each costs more than all the rest
CHANCE = 10  # bytes of an id that are drawn, but for six bits that say what this is

_DRAWN = int.from_bytes(bytes.fromhex("0fff3fffffffffffffff") * POOL)
_LAYOUT = int.from_bytes(bytes.fromhex("70008000000000000000") * POOL)
_pool: deque[bytes] = deque()


def new_job_id() -> bytes:
    """48 bits of milliseconds, the rest at random but for six bits that say what this is. From any thread."""
    try:
        chance = _pool.pop()
    except IndexError:
        chance = _draw()
    return (time.time_ns() // 1_000_000).to_bytes(6) + chance


def new_session() -> str:
    return secrets.token_hex(16)


def _draw() -> bytes:
    drawn = (int.from_bytes(os.urandom(CHANCE * POOL)) & _DRAWN | _LAYOUT).to_bytes(CHANCE * POOL)
    pieces = [drawn[at : at + CHANCE] for at in range(0, len(drawn), CHANCE)]
    _pool.extend(pieces[1:])
    return pieces[0]


# A child that goes on with its parent's pool would give its jobs the same ids.
os.register_at_fork(after_in_child=_pool.clear)
