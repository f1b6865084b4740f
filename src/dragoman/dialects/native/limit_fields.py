"""Limits of services in the HELLO of a worker. Readers raise Malformed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dragoman.carriers.malformed import Malformed
from dragoman.core.limit_values import MOST_RUNNING, LimitValues, Rate, given_limits, read_rate


def read_limits(value: Any) -> dict[str, LimitValues] | None:
    """Parse `limits`: an object of limits for each service; None if there is none. Unknown limits are ignored."""
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise Malformed("malformed", "limits must be an object with an object for each service")
    return {
        name: LimitValues(
            _number(each.get("max_running"), "max_running"),
            _number(each.get("max_running_per_tenant"), "max_running_per_tenant"),
            _rate(each.get("rate")),
        )
        for name, each in value.items()
    }


def write_limits(limits: Mapping[str, LimitValues]) -> dict[str, dict[str, int | str]]:
    return {name: given_limits(each) for name, each in limits.items()}


def _number(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= MOST_RUNNING:
        raise Malformed("malformed", f"{name} must be a number from 1 to {MOST_RUNNING}")
    return value


def _rate(value: Any) -> Rate | None:
    if value is None:
        return None
    try:
        rate = read_rate(value if isinstance(value, str) else repr(value))
    except ValueError as error:
        raise Malformed("malformed", str(error)) from None
    return rate if rate.count else None
