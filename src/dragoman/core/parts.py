"""Parts of a result that come ahead of the rest of it."""

from __future__ import annotations

from dragoman.core.oversize import over_max_payload

Payload = bytes | bytearray  # opaque, and never changed once handed in


class Parts:
    """The parts of one attempt's result that are kept until the rest comes."""

    __slots__ = ("kept", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[Payload] = []
        self.kept = 0  # bytes of these
        self.size = 0  # bytes of all that came: more than are kept if there was no room for them

    def add(self, part: Payload, most: int, room: int) -> None:
        """Keep one more part, if all parts of this result take at most so many bytes, and there is room for them."""
        self.size += len(part)
        if self.size <= most and self.size <= room and self.kept + len(part) == self.size:
            self.pieces.append(part)
            self.kept = self.size
        else:  # the job will fail: nothing is gained by keeping any of it
            self.pieces.clear()
            self.kept = 0

    def join(self, rest: Payload, most: int) -> tuple[Payload, str]:
        """The result with its parts in front of it; or empty, and why it cannot be had."""
        size = self.size + len(rest)
        if size > most:
            return b"", over_max_payload("its result", size, most)
        if self.kept < self.size:
            return b"", f"there was no room for the parts of its result, {self.size} bytes (max_memory)"
        return b"".join([*self.pieces, rest]), ""
