"""Names that a client makes up: job ids in UUIDv7 layout, and secrets that nobody guesses."""

from __future__ import annotations

import os
import secrets
import time


def new_job_id() -> bytes:
    """48 bits of milliseconds, the rest at random but for six bits that say what this is."""
    chance = os.urandom(10)
    milliseconds = time.time_ns() // 1_000_000
    return (
        milliseconds.to_bytes(6, "big")
        + bytes((0x70 | chance[0] & 0x0F, chance[1], 0x80 | chance[2] & 0x3F))
        + chance[3:]
    )


def new_session() -> str:
    return secrets.token_hex(16)
