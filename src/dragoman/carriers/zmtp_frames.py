"""Heads of ZMTP frames, and messages with large frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.zmtp_commands import MORE
from dragoman.carriers.zmtp_limits import KIB

PASSED_THROUGH: Final = 16 * KIB  # bytes; messages do not copy frames of this size or more
SHORT_LAST: Final = tuple(bytes((0, size)) for size in range(256))
SHORT_MORE: Final = tuple(bytes((MORE, size)) for size in range(256))


def encode_large(frames: Sequence[Frame]) -> list[Frame]:
    """Return the buffers of a message; large frames are buffers of their own."""
    buffers: list[Frame] = []
    joined = bytearray()
    more_to_come = len(frames)
    for frame in frames:
        more_to_come -= 1
        size = len(frame)
        if size < 256:
            joined += SHORT_MORE[size] if more_to_come else SHORT_LAST[size]
        else:
            joined += (b"\x03" if more_to_come else b"\x02") + size.to_bytes(8, "big")
        if size < PASSED_THROUGH:
            joined += frame
        else:
            buffers += (bytes(joined), frame)
            joined.clear()
    if joined:
        buffers.append(bytes(joined))
    return buffers
