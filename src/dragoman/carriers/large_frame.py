"""The buffer of a large frame. It grows with the bytes that arrived, not with the claimed length.

Python fills a new bytearray with zeros, so a buffer of 60 MiB would touch 60 MiB for a mere claim. This one begins at
`LARGE_FRAME` and grows only when it is full: to `then` at once if half of `LARGE_FRAME` has arrived already, and
fourfold from there. Growing copies into a new buffer instead of resizing, because the reader may still have views of
the old one.

The carrier has at most one view of `buffer`, and none once the frame is complete: `fill` releases the filled gap, even
if the reader still refers to it. So the receiver of the buffer may delete its beginning (`del buffer[:4]`), for which
CPython moves a pointer and copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dragoman.carriers.carrier import Frame, Message

LARGE_FRAME: Final = 64 * 1024  # bytes; an unfinished frame of this size or more gets its own buffer
MIB: Final = 1024 * 1024


class LargeFrame:
    """An unfinished frame of `size` bytes. `gap` is the place for its next bytes, None once it is complete."""

    __slots__ = ("_size", "_then", "buffer", "gap")

    def __init__(self, size: int, shown: int, first: int = LARGE_FRAME, then: int = MIB) -> None:
        """`shown`: bytes that have arrived. `first`, `then`: sizes of the buffer at first and after growing."""
        self._size = size
        self._then = then
        self.buffer = bytearray(min(size, first if shown < first // 2 else max(then, 4 * shown)))
        self.gap: memoryview | None = memoryview(self.buffer)

    def __len__(self) -> int:
        """Return the size of the buffer."""
        return len(self.buffer)

    def fill(self, count: int) -> None:
        """Accept `count` bytes that were read into `gap`."""
        gap = self.gap
        room = 0 if gap is None else len(gap)
        if gap is None or not 0 <= count <= room:
            raise ValueError(f"fill({count}), but the gap has {room} bytes")
        if count < room:
            self.gap = gap[count:]
        elif len(self.buffer) < self._size:
            self._grow()
        else:
            self.gap = None
        gap.release()

    def pour(self, data: bytes, pos: int) -> int:
        """Copy from `data` into the gap. Returns the position after the copied bytes."""
        end = len(data)
        with memoryview(data) as source:
            while pos < end and self.gap is not None:
                count = min(len(self.gap), end - pos)
                self.gap[:count] = source[pos : pos + count]
                self.fill(count)
                pos += count
        return pos

    def _grow(self) -> None:
        filled = len(self.buffer)
        larger = bytearray(min(self._size, max(self._then, 4 * filled)))
        larger[:filled] = self.buffer
        self.buffer = larger
        with memoryview(larger) as view:
            self.gap = view[filled:]


NOTHING: Final = LargeFrame(0, 0)  # for a carrier without a large frame; its gap is not used


def leading_small(frames: Message) -> Message:
    """Return the frames before the first large one."""
    for index, frame in enumerate(frames):
        if len(frame) >= LARGE_FRAME:
            return frames[:index]
    return frames


def encode_large(frames: Sequence[Frame], copied: int) -> list[Frame]:
    """Return the buffers of a ZMTP message. Frames of `copied` bytes or more are buffers of their own."""
    buffers: list[Frame] = []
    joined = bytearray()
    more_to_come = len(frames)
    for frame in frames:
        more_to_come -= 1
        size = len(frame)
        if size < 256:
            joined += bytes((1 if more_to_come else 0, size))
        else:
            joined += (b"\x03" if more_to_come else b"\x02") + size.to_bytes(8, "big")
        if size < copied:
            joined += frame
        else:
            buffers += (bytes(joined), frame)
            joined.clear()
    if joined:
        buffers.append(bytes(joined))
    return buffers
