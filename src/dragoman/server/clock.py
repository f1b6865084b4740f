"""Time and chance, as the line gets them: the only module that reads a clock or draws a random number."""

from __future__ import annotations

import os
import time
from struct import unpack
from time import time_ns

from dragoman.core.model import JobId, Token

POOL_BYTES = 1 << 14
TOKENS = "16s" * (POOL_BYTES // 16)

# UUIDv7's last ten bytes are noise, but for version and variant (RFC 9562): here for many ids at once, as one number.
NOISE_BYTES = 10
NOISES = 1024
UUID_NOISE = int.from_bytes(bytes.fromhex("0fff3fffffffffffffff") * NOISES, "big")
UUID_MARKS = int.from_bytes(bytes.fromhex("70008000000000000000") * NOISES, "big")


now = time.monotonic  # seconds that never run backwards (R25)


def suspended() -> float:
    """Seconds this machine has slept since it booted: the clock above stood still meanwhile (R26)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class SystemEntropy:
    """Ids and tokens from the system's random source, drawn a pool at a time: single calls cost too much."""

    __slots__ = ("_noise", "_noise_position", "_pool", "_position", "_tokens")

    def __init__(self) -> None:
        self._pool = self._noise = b""
        self._position = POOL_BYTES
        self._tokens: list[Token] = []
        self._noise_position = NOISES * NOISE_BYTES

    def job_id(self) -> JobId:
        """128 bits in UUIDv7 layout: milliseconds since 1970, then random bits, with version and variant in place."""
        start = self._noise_position
        if start == NOISES * NOISE_BYTES:
            self._refill_noise()
            start = 0
        self._noise_position = end = start + NOISE_BYTES
        return (time_ns() // 1_000_000).to_bytes(6, "big") + self._noise[start:end]  # type: ignore[return-value]

    def token(self) -> Token:
        if not self._tokens:
            self._tokens = list(unpack(TOKENS, os.urandom(POOL_BYTES)))
        return self._tokens.pop()

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

    def _refill_noise(self) -> None:
        size = NOISES * NOISE_BYTES
        drawn = int.from_bytes(os.urandom(size), "big") & UUID_NOISE | UUID_MARKS
        self._noise = drawn.to_bytes(size, "big")
