"""Limits that a worker declares for a service."""

from __future__ import annotations

from dragoman.core.limit_values import MOST_RUNNING, read_rate
from dragoman.core.limit_values import NOTHING_GIVEN as NOTHING_GIVEN
from dragoman.core.limit_values import LimitValues as LimitValues


def limits_of(max_running: int | None, max_running_per_tenant: int | None, rate: str | None) -> LimitValues:
    """Return validated limits. Raises ValueError."""
    if max_running is None and max_running_per_tenant is None and rate is None:
        return NOTHING_GIVEN
    for name, most in (("max_running", max_running), ("max_running_per_tenant", max_running_per_tenant)):
        if most is not None and (type(most) is not int or not 1 <= most <= MOST_RUNNING):
            raise ValueError(f"{name}={most!r}: must be a whole number from 1 to {MOST_RUNNING}, or None")
    parsed = read_rate(rate) if rate is not None else None
    return LimitValues(max_running, max_running_per_tenant, parsed if parsed is not None and parsed.count else None)
