"""Validation of names that come from outside: services, workers and idempotency keys."""

from __future__ import annotations

import re
from typing import Final

BARRED_FROM_NAMES: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters, lone surrogates


def is_name(name: str, max_bytes: int) -> bool:
    """True if it is 1 to `max_bytes` bytes of UTF-8 without control characters."""
    return is_text(name) and 0 < len(name.encode()) <= max_bytes


def is_text(name: str) -> bool:
    """True if it can be encoded as UTF-8 and has no control characters."""
    return BARRED_FROM_NAMES.search(name) is None
