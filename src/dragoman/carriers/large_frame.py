"""The buffer that a large frame is read into, which grows with what has come and not with what was claimed.

Python fills a new bytearray with zeros, so a buffer of 60 MiB for 60 MiB claimed would be 60 MiB touched. This one
begins at `LARGE_FRAME`, and only grows when it is full: to `then` at once if the sender has shown half of `LARGE_FRAME`
already, and fourfold from there. Growing copies into a new buffer instead of resizing, because whoever reads may still
have other views of the old one.

There is never more than one view of ours on `buffer`, and none once the frame is whole: `fill` releases the gap that
was filled, even if the reader still has it in its hand. So whoever gets the buffer may cut off its beginning
(`del buffer[:4]`), for which CPython moves a pointer and copies nothing.
"""

from __future__ import annotations

from typing import Final

LARGE_FRAME: Final = 64 * 1024  # from here on a frame that is not yet whole gets a buffer of its own
MIB: Final = 1024 * 1024


class LargeFrame:
    """One frame of `size` bytes under way. `gap` is where its next bytes belong; none once it is whole."""

    __slots__ = ("_size", "_then", "buffer", "gap")

    def __init__(self, size: int, shown: int, first: int = LARGE_FRAME, then: int = MIB) -> None:
        """`shown`: so many bytes of it are there, about to be poured. `first`, `then`: what the buffer begins with."""
        self._size = size
        self._then = then
        self.buffer = bytearray(min(size, first if shown < first // 2 else max(then, 4 * shown)))
        self.gap: memoryview | None = memoryview(self.buffer)

    def __len__(self) -> int:
        """Bytes it takes."""
        return len(self.buffer)

    def fill(self, count: int) -> None:
        """`count` bytes were read into `gap`."""
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
        """Copies from `data` into the gap, as if it had been read there; returns the end of what was copied."""
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


NOTHING: Final = LargeFrame(0, 0)  # for a carrier that has no large frame under way; its gap is nobody's
