"""A failure: a worker's error as a value, and as bytes where there is only one field for it.

That is so in the `result` column of the store, in a response of the native dialect, and on the pipe of a child process.
The bytes are type, message and traceback in UTF-8, separated by NUL. The worker's decision about retries precedes them,
if it has made one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dragoman.core.infinity import inf

SEPARATOR: Final = "\0"
DECISION: Final = "\x01"  # precedes the decision about retries
NEVER: Final = "never"
MOST_SECONDS: Final = 1e12  # longer delays are written as this one: no broker waits so long


@dataclass(frozen=True, slots=True)
class Failure:
    """A worker's error."""

    type: str  # such as ValueError
    message: str
    traceback: str = ""
    retry_in: float | None = None  # seconds; inf: never retried; None: the worker leaves it to the job's options

    @property
    def is_permanent(self) -> bool:
        """True if the worker has decided that the job is not retried."""
        return self.retry_in == inf

    @property
    def sentence(self) -> str:
        return f"{self.type}: {self.message}" if self.type else self.message

    @property
    def size(self) -> int:
        """Number of characters with the separators: the bytes it takes if its texts are ASCII."""
        return len(self.type) + len(self.message) + len(self.traceback) + 2


def reported_failure(type: str, message: str, traceback: str, retry_in: float | None = None) -> Failure:
    """Make the failure that a worker reports. Separators are removed from the type and the message, as in
    `pack_failure`, so that a failure that was stored equals one that was not."""
    return Failure(_type(type), message.replace(SEPARATOR, ""), traceback, retry_in)


def pack_failure(failure: Failure) -> bytes:
    texts = [_type(failure.type), failure.message.replace(SEPARATOR, ""), failure.traceback]
    if failure.retry_in is not None:
        texts.insert(0, DECISION + retry_text(failure.retry_in))
    return SEPARATOR.join(texts).encode("utf-8", "replace")


def unpack_failure(packed: bytes | bytearray) -> Failure | None:
    """Return the failure in these bytes; None if they contain none."""
    text = bytes(packed).decode("utf-8", "replace")
    retry_in = None
    if text[:1] == DECISION:
        decision, _, text = text[1:].partition(SEPARATOR)
        retry_in = read_retry(decision)
    parts = text.split(SEPARATOR, 2)
    return Failure(parts[0], parts[1], parts[2], retry_in) if len(parts) == 3 else None


def _type(text: str) -> str:
    return text.replace(SEPARATOR, "").lstrip(DECISION)


def retry_text(retry_in: float) -> str:
    return NEVER if retry_in == inf else f"{min(retry_in, MOST_SECONDS):.3f}"


def read_retry(text: str) -> float | None:
    """Read the text of `retry_text`: seconds, or `never`. None: it is neither."""
    if text == NEVER:
        return inf
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0.0 <= seconds < inf else None
