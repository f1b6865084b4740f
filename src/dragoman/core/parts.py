"""Parts of a result that are sent before the rest."""

from __future__ import annotations

from dragoman.core.oversize import over_max_payload

Payload = bytes | bytearray  # opaque, and never changed after it is passed in


class Parts:
    """Parts of one attempt's result, kept until the rest arrives."""

    __slots__ = ("kept", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[Payload] = []
        self.kept = 0  # bytes of the pieces
        self.size = 0  # bytes received: more than `kept` if there was no room

    def add(self, part: Payload, most: int, room: int) -> None:
        """Keep one more part, if the parts take at most `most` bytes for this result and `room` bytes in memory."""
        self.size += len(part)
        if self.size <= most and self.size <= room and self.kept + len(part) == self.size:
            self.pieces.append(part)
            self.kept = self.size
        else:  # the job will fail, so none of it is needed
            self.pieces.clear()
            self.kept = 0

    def join(self, rest: Payload, most: int) -> tuple[Payload, str]:
        """Return the result with its parts in front; or no bytes, and an error message."""
        size = self.size + len(rest)
        if size > most:
            return b"", over_max_payload("its result", size, most)
        if self.kept < self.size:
            return b"", f"the parts of its result, {self.size} bytes, exceed the memory for parts (max_memory)"
        return b"".join([*self.pieces, rest]), ""
