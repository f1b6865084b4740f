"""Times as users type them: a date with a time, or an age such as `2h`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

UNITS = {"s": 1, "min": 60, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
AGE = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(UNITS)})")
ALLOWED = "a time such as 2026-11-18T03:00:00Z, or an age such as 90s, 30min, 2h or 7d"


def moment_of(text: str, now: datetime | None = None) -> datetime:
    """Return the time. One without a zone is local; an age is counted back from now. Raises ValueError."""
    text = text.strip()
    try:
        if age := AGE.fullmatch(text):
            return (now or datetime.now(UTC)) - timedelta(seconds=float(age[1]) * UNITS[age[2]])
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.astimezone()
    except (ValueError, OverflowError):
        raise ValueError(f"must be {ALLOWED}") from None
