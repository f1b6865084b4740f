"""Jobs that a worker brings to a broker: the field `running` in HELLO and WELCOME. Readers raise Malformed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.carriers.malformed import Malformed
from dragoman.dialects.native.messages import MOST_NAMES, NAME


def read_running(value: Any) -> dict[str, tuple[bytes, ...]] | None:
    """Parse `running` of HELLO: an object with the tokens of each service; None if there is none."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Malformed("malformed", "running must be an object with the tokens of each service")
    return {service: read_tokens(tokens) for service, tokens in value.items()}


def write_running(running: Mapping[str, Sequence[bytes]]) -> dict[str, str]:
    return {service: write_tokens(tokens) for service, tokens in running.items()}


def read_tokens(value: Any) -> tuple[bytes, ...]:
    """Parse tokens in hex digits, without separators."""
    try:
        data = bytes.fromhex(value) if isinstance(value, str) else None
    except ValueError:
        data = None
    if data is None or len(data) % NAME or len(data) > MOST_NAMES * NAME:
        raise Malformed("malformed", f"running must have tokens of {2 * NAME} hex digits, at most {MOST_NAMES}")
    return tuple(data[at : at + NAME] for at in range(0, len(data), NAME))


def write_tokens(tokens: Sequence[bytes]) -> str:
    return b"".join(tokens).hex()
