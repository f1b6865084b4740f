"""Numbers, durations and names in the sentences of the dashboard."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMES = 3


def count_of(count: int, noun: str) -> str:
    """Return `1 job`, `2,227 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def seconds(duration: float) -> str:
    """Return a duration in its largest usual unit: `21 s`, `12 min`, `5.5 h`, `3.1 d`."""
    if duration < 10.0:
        return f"{duration:.1f} s"
    if duration < 120.0:
        return f"{duration:.0f} s"
    if duration < 7_200.0:
        return f"{duration / 60.0:.0f} min"
    return f"{duration / 3_600.0:.1f} h" if duration < 172_800.0 else f"{duration / 86_400.0:.1f} d"


def rate(number: float) -> str:
    """Return a rate with two or three digits."""
    if number >= 10.0 or number == 0.0:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 1.0 else f"{number:.2g}"


def percent(share: float) -> str:
    number = 100.0 * share
    return f"{number:.0f} %" if number >= 10.0 else f"{number:.2g} %"


def joined(names: Sequence[str] | None) -> str:
    """Return up to three names in quotation marks, and the number of the others."""
    shown = [f"'{name}'" for name in (names or ())[:MOST_NAMES]]
    more = len(names or ()) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
