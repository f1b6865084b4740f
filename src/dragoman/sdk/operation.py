"""An operation that a client asks the broker for, and its answer."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.carriers.carrier import Frame

OperationAnswer = tuple[bytes, Frame]  # a view, as JSON, and what is no JSON


@dataclass(frozen=True, slots=True)
class OperationCall:
    """`timeout`: how long an answer is waited for; none: as long as there is a connection."""

    text: str
    form: bytes
    payload: Frame = b""
    timeout: float | None = None
