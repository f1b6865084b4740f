"""A failure: a worker's error as a value, and as bytes where there is only one field for it.

That is so in the `result` column of the store, in a response of the native dialect, and on the pipe of a child process.
The bytes are type, message and traceback in UTF-8, separated by NUL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SEPARATOR: Final = "\0"


@dataclass(frozen=True, slots=True)
class Failure:
    """A worker's error."""

    type: str  # such as ValueError
    message: str
    traceback: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.type}: {self.message}" if self.type else self.message

    @property
    def size(self) -> int:
        """Number of characters with the separators: the bytes it takes if its texts are ASCII."""
        return len(self.type) + len(self.message) + len(self.traceback) + 2


def reported_failure(type: str, message: str, traceback: str) -> Failure:
    """Make the failure that a worker reports. NULs are removed from the type and the message, as in `pack_failure`, so
    that a failure that was stored equals one that was not."""
    return Failure(type.replace(SEPARATOR, ""), message.replace(SEPARATOR, ""), traceback)


def pack_failure(failure: Failure) -> bytes:
    texts = (failure.type.replace(SEPARATOR, ""), failure.message.replace(SEPARATOR, ""), failure.traceback)
    return SEPARATOR.join(texts).encode("utf-8", "replace")


def unpack_failure(packed: bytes | bytearray) -> Failure | None:
    """Return the failure in these bytes; None if they contain none."""
    parts = bytes(packed).decode("utf-8", "replace").split(SEPARATOR, 2)
    return Failure(parts[0], parts[1], parts[2]) if len(parts) == 3 else None
