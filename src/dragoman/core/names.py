"""Validation of names that come from outside: services, workers and idempotency keys."""

from __future__ import annotations

import re
from typing import Final

# Control characters, lone surrogates, and what cannot be seen: two names would look alike, or a line would be shown in
# another order. That is Unicode's default-ignorable characters (zero width, direction, fillers, variation selectors,
# tags), separators of lines and paragraphs, spaces other than the plain one, and marks of annotations.
CONTROL: Final = r"\x00-\x1f\x7f-\x9f"
INVISIBLE: Final = (
    r"\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800"
    r"\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
)
BARRED_FROM_NAMES: Final = re.compile(
    rf"[{CONTROL}{INVISIBLE}\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def is_name(name: str, max_bytes: int) -> bool:
    """True if it is 1 to `max_bytes` bytes of UTF-8 without control characters and those that cannot be seen."""
    return is_text(name) and 0 < len(name.encode()) <= max_bytes


def is_text(name: str) -> bool:
    """True if it can be encoded as UTF-8 and has no control characters and none that cannot be seen."""
    return BARRED_FROM_NAMES.search(name) is None
