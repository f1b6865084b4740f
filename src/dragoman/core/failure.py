"""A failure: a worker's error as a value, and as bytes where there is only one field for it.

That is so in the `result` column of the store, in a response of the native dialect, and on the pipe of a child process.
The bytes are type, message and traceback in UTF-8, separated by NUL. The worker's decision about retries precedes them,
if it has made one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dragoman.core.infinity import inf

SEPARATOR: Final = "\0"
DECISION: Final = "\x01"  # precedes the decision about retries
NEVER: Final = "never"
WRONG_ARGUMENTS: Final = "dragoman.WrongArguments"  # type of the failure of arguments that do not fit a task
UNKNOWN: Final = "unknown "  # precedes names of parameters, in JSON: those that are not known, and those that are
MOST_RETRY: Final = 32  # characters of seconds or `never`
MOST_DECISION: Final = 16_384  # characters of a decision
MOST_SECONDS: Final = 1e12  # longer delays are written as this one: no broker waits so long


@dataclass(frozen=True, slots=True)
class Failure:
    """A worker's error."""

    type: str  # such as ValueError
    message: str
    traceback: str = ""
    retry_in: float | None = None  # seconds; inf: never retried; None: the worker leaves it to the job's options
    # The worker has refused the job before it started: parameters that it does not know, and all that it knows (R267).
    unknown: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

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


def reported_failure(
    type: str,
    message: str,
    traceback: str,
    retry_in: float | None = None,
    unknown: Sequence[str] = (),
    known: Sequence[str] = (),
) -> Failure:
    """Make the failure that a worker reports. Separators are removed from the type and the message, as in
    `pack_failure`, so that a failure that was stored equals one that was not."""
    return Failure(_type(type), message.replace(SEPARATOR, ""), traceback, retry_in, tuple(unknown), tuple(known))


def final_failure(failure: Failure) -> Failure:
    """Return the failure of a job that waits for no other worker: it has ended."""
    return replace(failure, unknown=(), known=()) if failure.unknown else failure


def pack_failure(failure: Failure) -> bytes:
    texts = [_type(failure.type), failure.message.replace(SEPARATOR, ""), failure.traceback]
    decision = decision_text(failure)
    if decision:
        texts.insert(0, DECISION + decision)
    return SEPARATOR.join(texts).encode("utf-8", "replace")


def unpack_failure(packed: bytes | bytearray) -> Failure | None:
    """Return the failure in these bytes; None if they contain none."""
    text = bytes(packed).decode("utf-8", "replace")
    retry_in, names = None, NO_NAMES
    if text[:1] == DECISION:
        decision, _, text = text[1:].partition(SEPARATOR)
        retry_in, names = read_decision(decision)
    parts = text.split(SEPARATOR, 2)
    return Failure(parts[0], parts[1], parts[2], retry_in, *names) if len(parts) == 3 else None


def _type(text: str) -> str:
    return text.replace(SEPARATOR, "").lstrip(DECISION)


Names = tuple[tuple[str, ...], tuple[str, ...]]
NO_NAMES: Final[Names] = ((), ())


def decision_text(failure: Failure) -> str:
    """Return the worker's decision about retries: seconds, `never`, or the names of parameters that it does not know
    and of those that it knows. Empty: it has made none."""
    if failure.retry_in is None:
        return ""
    if failure.unknown:
        text = UNKNOWN + json.dumps((failure.unknown, failure.known), separators=(",", ":"))
        return text if len(text) <= MOST_DECISION else NEVER
    return retry_text(failure.retry_in)


def read_decision(text: str) -> tuple[float | None, Names]:
    """Read the text of `decision_text`: the delay, and the names. A delay of None: it is no decision."""
    if not text.startswith(UNKNOWN):
        return (read_retry(text) if len(text) <= MOST_RETRY else None), NO_NAMES
    try:
        unknown, known = json.loads(text[len(UNKNOWN) :])
    except (ValueError, TypeError, RecursionError):
        return None, NO_NAMES
    if not (_are_names(unknown) and unknown and _are_names(known)):
        return None, NO_NAMES
    return inf, (tuple(unknown), tuple(known))


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


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
