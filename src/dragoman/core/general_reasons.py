"""Reasons of jobs without the parts that differ from job to job, so that equal causes have equal texts."""

from __future__ import annotations

import re
from typing import Final

MOST_REASON: Final = 1_000  # characters of a reason that are compared; workers may send long ones
GAP: Final = "…"  # stands for a number, a hexadecimal value or a quoted text

# Quotes within words are apostrophes. A hexadecimal value has a digit, or eight letters. Quantifiers are possessive,
# because workers choose the text, and backtracking would take quadratic time.
_VARYING: Final = re.compile(
    r"""(?<!\w)'[^']*'(?!\w) | "[^"]*" | `[^`]*`
    | \b0[xX][0-9a-fA-F]++\b | \b[0-9a-fA-F]{8,}+\b | \b(?=[a-fA-F]*+\d)[0-9a-fA-F]++\b | \d++""",
    re.VERBOSE,
)
_GAPS: Final = re.compile(rf"{GAP}(?:[-.,:/+]?{GAP})+")  # of a time, an address, a UUID or a version


def generalize(reason: str) -> str:
    """Replace the parts of a reason that differ from job to job: numbers, hexadecimal values and quoted texts. Its end
    is left out if it is long."""
    return _GAPS.sub(GAP, _VARYING.sub(GAP, reason[:MOST_REASON]))
