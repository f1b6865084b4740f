"""Values of the limits of a service, as operators and workers give them, and the rule that combines them (R183)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

UNITS: Final = {"s": 1.0, "min": 60.0, "h": 3_600.0}  # seconds
MOST_STARTS: Final = 1_000_000  # in one unit of a rate
MOST_RUNNING: Final = 1_000_000
NONE: Final = "none"
RATE_ALLOWED: Final = f"write a number from 1 to {MOST_STARTS} and a unit, s, min or h, such as 100/min"


@dataclass(frozen=True, slots=True)
class Rate:
    """Starts of jobs in a unit of time. `count` 0: no limit."""

    count: int
    unit: str = "s"

    @property
    def interval(self) -> float:
        """Seconds between two starts; 0: no limit."""
        return UNITS[self.unit] / self.count if self.count else 0.0

    def __str__(self) -> str:
        return f"{self.count}/{self.unit}" if self.count else NONE


NO_RATE: Final = Rate(0)


def read_rate(text: str) -> Rate:
    """Read a rate such as `100/min`, or `none`. Raises ValueError."""
    if text == NONE:
        return NO_RATE
    number, slash, unit = text.partition("/")
    if not slash or unit not in UNITS or not (number.isascii() and number.isdigit()):
        raise ValueError(f"rate {text!r} is not a rate; {RATE_ALLOWED}")
    count = int(number) if len(number) < 10 else 0
    if not 0 < count <= MOST_STARTS:
        raise ValueError(f"rate {text!r} is out of range; {RATE_ALLOWED}")
    return Rate(count, unit)


@dataclass(frozen=True, slots=True)
class LimitValues:
    """Limits of a service, from an operator or one worker. None: not given. A number 0, or NO_RATE: no limit."""

    max_running: int | None = None
    max_running_per_tenant: int | None = None
    rate: Rate | None = None

    @property
    def is_empty(self) -> bool:
        return self.max_running is None and self.max_running_per_tenant is None and self.rate is None


def given_limits(values: LimitValues) -> dict[str, int | str]:
    """Return the limits that are given, for JSON."""
    written: dict[str, int | str] = {}
    if values.max_running is not None:
        written["max_running"] = values.max_running
    if values.max_running_per_tenant is not None:
        written["max_running_per_tenant"] = values.max_running_per_tenant
    if values.rate is not None:
        written["rate"] = str(values.rate)
    return written


@dataclass(frozen=True, slots=True)
class LimitSetting:
    """Limits that hold, and for each of them its author. None: there is no such limit."""

    max_running: int | None = None
    max_running_per_tenant: int | None = None
    rate: Rate | None = None
    max_running_by: str = ""
    max_running_per_tenant_by: str = ""
    rate_by: str = ""

    @property
    def limits_running(self) -> bool:
        return self.max_running is not None or self.max_running_per_tenant is not None

    @property
    def is_empty(self) -> bool:
        return not self.limits_running and self.rate is None

    def __str__(self) -> str:
        """`max_running 4, rate 100/min`."""
        facts = {
            "max_running": self.max_running,
            "max_running_per_tenant": self.max_running_per_tenant,
            "rate": self.rate,
        }
        return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None) or "no limits"


NOTHING_GIVEN: Final = LimitValues()
NOTHING_SET: Final = LimitSetting()
BY_WORKERS: Final = "declared by its workers"


def combine(by_operator: LimitValues, author: str, declared: Iterable[LimitValues]) -> tuple[LimitSetting, bool]:
    """Return the limits that hold, and whether workers differ about one that no operator has set.

    Each limit by itself: that of an operator if there is one, else the lowest that a worker has declared.
    """
    declared = list(declared)
    most, most_by, is_disputed = _number(by_operator.max_running, author, [each.max_running for each in declared])
    per_tenant, per_tenant_by, is_tenant_disputed = _number(
        by_operator.max_running_per_tenant, author, [each.max_running_per_tenant for each in declared]
    )
    rates = [each.rate for each in declared if each.rate is not None and each.rate.count]
    rate, rate_by, is_rate_disputed = by_operator.rate, f"set by {author}", False
    if rate is None:
        rate, rate_by = max(rates, key=_interval, default=None), BY_WORKERS
        is_rate_disputed = len({each.interval for each in rates}) > 1
    if rate is None or not rate.count:
        rate, rate_by = None, ""
    setting = LimitSetting(most, per_tenant, rate, most_by, per_tenant_by, rate_by)
    return setting, is_disputed or is_tenant_disputed or is_rate_disputed


def _number(by_operator: int | None, author: str, declared: list[int | None]) -> tuple[int | None, str, bool]:
    """Return the number that holds (None: no limit), its author, and whether workers differ."""
    if by_operator is not None:
        return (by_operator, f"set by {author}", False) if by_operator else (None, "", False)
    numbers = [each for each in declared if each]
    if not numbers:
        return None, "", False
    return min(numbers), BY_WORKERS, min(numbers) != max(numbers)


def _interval(rate: Rate) -> float:
    return rate.interval
