"""Time and chance, as the line gets them: the only module that reads a clock or draws a random number."""

from __future__ import annotations

import os
import time
from time import monotonic, time_ns

from dragoman.core.model import JobId, Token

POOL_BYTES = 1 << 14


def now() -> float:
    """Seconds that never run backwards (R25)."""
    return monotonic()


def suspended() -> float:
    """Seconds this machine has slept since it booted: the clock above stood still meanwhile (R26)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class SystemEntropy:
    """Ids and tokens from the system's random source, drawn a pool at a time: single calls cost too much."""

    __slots__ = ("_pool", "_position")

    def __init__(self) -> None:
        self._pool = b""
        self._position = POOL_BYTES

    def job_id(self) -> JobId:
        """128 bits in UUIDv7 layout: milliseconds since 1970, then random bits, with version and variant in place."""
        noise = int.from_bytes(self._draw(10), "big") & UUID_NOISE | UUID_MARKS
        return JobId((time_ns() // 1_000_000).to_bytes(6, "big") + noise.to_bytes(10, "big"))

    def token(self) -> Token:
        return Token(self._draw(16))

    def jitter(self) -> float:
        return int.from_bytes(self._draw(4), "big") / 2**31 - 1.0

    def _draw(self, count: int) -> bytes:
        start = self._position
        end = start + count
        if end > POOL_BYTES:
            self._pool = os.urandom(POOL_BYTES)
            start, end = 0, count
        self._position = end
        return self._pool[start:end]


UUID_MARKS = 0x7000_8000_0000_0000_0000  # version 7, and the variant of RFC 9562
UUID_NOISE = 0x0FFF_3FFF_FFFF_FFFF_FFFF
