"""Time and randomness for the server: the only module that reads a clock or draws random numbers."""

from __future__ import annotations

import os
import time
from struct import Struct
from time import time_ns
from typing import Final

from dragoman.core.entropy import Entropy, without_zeros
from dragoman.core.model import JobId, Token

POOL: Final = 1024  # ids, and tokens, that are drawn at once

# The last ten bytes of UUIDv7 are random, except for version and variant (RFC 9562). Masks for many ids at once.
NOISE_BYTES: Final = 10
UUID_NOISE: Final = int.from_bytes(bytes.fromhex("0fff3fffffffffffffff") * POOL, "big")
UUID_MARKS: Final = int.from_bytes(bytes.fromhex("70008000000000000000") * POOL, "big")
NOISES: Final = Struct(f"{NOISE_BYTES}s" * POOL)
CALL_BYTE: Final = b"\xff"  # as in cluster/shard_bytes.py, which is loaded only in a cluster
TOKENS: Final = Struct("16s" * POOL)


random_bytes: Final = os.urandom
now: Final = time.monotonic  # seconds; never runs backwards (R25)
_wall: Final = time.time


def wall_offset() -> float:
    """Return the difference between the wall clock and `now`."""
    return _wall() - now()


def suspended() -> float:
    """Return the seconds for which this machine was suspended since it booted; `now` does not count them (R26)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class SystemEntropy(Entropy):
    """Ids and tokens from the system's random source, drawn in pools: single calls cost too much."""

    __slots__ = ("_millisecond", "_noises", "_stamp", "_tokens")

    def __init__(self) -> None:
        self._noises: list[bytes] = []
        self._tokens: list[bytes] = []
        self._millisecond = 0
        self._stamp = b""  # the same, as the first bytes of an id

    def job_id(self) -> JobId:
        """Return 128 bits in UUIDv7 layout: milliseconds since 1970, then random bits with version and variant."""
        millisecond = time_ns() // 1_000_000
        if millisecond != self._millisecond:
            self._millisecond = millisecond
            self._stamp = millisecond.to_bytes(6, "big")
        if not self._noises:
            drawn = int.from_bytes(os.urandom(NOISES.size), "big") & UUID_NOISE | UUID_MARKS
            self._noises.extend(NOISES.unpack(drawn.to_bytes(NOISES.size, "big")))
        return self._stamp + self._noises.pop()  # type: ignore[return-value]

    def token(self) -> Token:
        if not self._tokens:
            self._tokens.extend(TOKENS.unpack(without_zeros(os.urandom(TOKENS.size))))
        return self._tokens.pop()  # type: ignore[return-value]

    def jitter(self) -> float:
        return int.from_bytes(os.urandom(4), "big") / 2**31 - 1.0


class ClusterEntropy(SystemEntropy):
    """Ids and tokens of a broker in a cluster. Their last byte says that they belong to a call, and to no shard."""

    __slots__ = ()

    def job_id(self) -> JobId:
        return JobId(super().job_id()[:-1] + CALL_BYTE)

    def token(self) -> Token:
        return Token(super().token()[:-1] + CALL_BYTE)
