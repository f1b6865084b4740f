"""Reads the bytes of an input as numbers, pieces and frames."""

from __future__ import annotations

from dragoman.carriers.carrier import Message

REST = 255  # the length of a piece that has all bytes up to the end


class Input:
    """The unread part of an input. After the end, numbers are 0 and pieces are empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def __bool__(self) -> bool:
        return self._pos < len(self._data)

    def number(self) -> int:
        """Return the next byte."""
        return self.take(1)[0] if self else 0

    def long_number(self) -> int:
        """Return the next two bytes."""
        return self.number() << 8 | self.number()

    def take(self, count: int) -> bytes:
        piece = self._data[self._pos : self._pos + count]
        self._pos += len(piece)
        return piece

    def piece(self) -> bytes:
        """Return the bytes after a length of one byte."""
        length = self.number()
        return self.rest() if length == REST else self.take(length)

    def rest(self) -> bytes:
        return self.take(len(self._data))

    def frames(self) -> Message:
        """Return all pieces up to the end."""
        frames: Message = []
        while self:
            frames.append(self.piece())
        return frames
