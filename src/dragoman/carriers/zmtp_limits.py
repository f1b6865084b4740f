"""Limits of one ZMTP connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.carriers.malformed import Malformed

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True)
class ZmtpLimits:
    """Maximum number of bytes kept for one connection (`max_frames`: in frames)."""

    max_payload: int = 64 * MIB  # all frames of a message; a larger one is dropped
    hard_cap: int = 1024 * MIB  # all frames of a message; a larger one fails the connection
    max_frames: int = 64
    max_identity: int = 255
    max_handshake: int = 16 * KIB  # greeting and READY
    max_metadata: int = 8 * KIB  # the properties in READY
    max_command: int = 64 * KIB

    def __post_init__(self) -> None:
        if not 0 < self.max_payload <= self.hard_cap:
            raise ValueError(f"max_payload {self.max_payload} must be above 0 and at most hard_cap {self.hard_cap}")


DEFAULT_LIMITS: Final = ZmtpLimits()


def too_many_frames(max_frames: int) -> Malformed:
    return Malformed("too many frames", f"a message has more than {max_frames} frames (max_frames)")
