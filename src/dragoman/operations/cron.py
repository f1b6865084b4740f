"""Cron expressions: parses them and computes the next matching time.

Five fields: minute, hour, day of month, month, day of week. If both kinds of day are restricted, either may match; a
field that begins with `*` does not count as restricted, as in every cron since Vixie's.

The hour field decides what happens when the clocks change. An expression with certain hours means local time: a time
that the clocks skip matches at the first moment after the gap, and a time that they show twice matches once, the first
time. An expression with all hours, such as `*/15 * * * *`, means an interval and continues evenly: skipped times have
no match, and times that the clocks show twice match twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from zoneinfo import ZoneInfo

from dragoman.operations.schemas import OperationError

MAX_LENGTH = 256  # characters of an expression
HORIZON = 41  # years: 29 February falls on a certain day of the week every 28 years, or 40 where a century has none
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
LAST_DAY = 32  # stands for `L` among the days of a month


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression: the values of each field, sorted. Days of the week count from Sunday, which is 0."""

    text: str = field(compare=False)
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    is_either_day: bool  # one matching day field is enough

    def next(self, after: datetime) -> datetime | None:
        """Return the first match later than `after`, in the same time zone; None if there is none."""
        zone = after.tzinfo
        assert zone is not None, "`after` has a time zone"
        start = after.astimezone(UTC)
        wall = start.astimezone(zone).replace(tzinfo=None)
        search = self._next_of_all_hours if len(self.hours) == 24 else self._next_local_time
        found = search(start, wall, zone)
        return found.astimezone(zone) if found is not None else None

    def _next_local_time(self, start: datetime, wall: datetime, zone: tzinfo) -> datetime | None:
        """Return the first match after `start`. Local times and their moments have the same order."""
        for local in self._times(wall):
            moments = _moments(local, zone)
            moment = moments[0] if moments else _end_of_gap(local, zone)
            if moment > start:
                return moment
        return None

    def _next_of_all_hours(self, start: datetime, wall: datetime, zone: tzinfo) -> datetime | None:
        times = [self._times(wall)]
        back = wall + DAY - (start + DAY).astimezone(zone).replace(tzinfo=None)
        if back > timedelta(0):  # the clocks go back within a day and may show times again
            times.append(takewhile(wall.__ge__, self._times(wall - back - MINUTE)))
        found = [_first(each, start, zone) for each in times]
        return min((each for each in found if each is not None), default=None)

    def _times(self, after: datetime) -> Iterator[datetime]:
        """Yield matching local times after `after`, in order, including those that the clocks skip."""
        first = after.replace(second=0, microsecond=0)
        for day in self._dates(first):
            is_first = day.date() == first.date()
            for hour in self.hours[bisect_left(self.hours, first.hour) if is_first else 0 :]:
                is_now = is_first and hour == first.hour
                for minute in self.minutes[bisect_right(self.minutes, first.minute) if is_now else 0 :]:
                    yield day.replace(hour=hour, minute=minute)

    def _dates(self, first: datetime) -> Iterator[datetime]:
        for year in range(first.year, min(first.year + HORIZON, 9998) + 1):
            for month in self.months:
                if (year, month) < (first.year, first.month):
                    continue
                begins_on, length = monthrange(year, month)
                from_day = first.day if (year, month) == (first.year, first.month) else 1
                for day in range(from_day, length + 1):
                    # monthrange counts from Monday
                    if self._has_day(day, (begins_on + day) % 7, day == length):
                        yield datetime(year, month, day)

    def _has_day(self, day: int, weekday: int, is_last: bool) -> bool:
        of_month = day in self.days or (is_last and LAST_DAY in self.days)
        of_week = weekday in self.weekdays
        return of_month or of_week if self.is_either_day else of_month and of_week


def _moments(local: datetime, zone: tzinfo) -> list[datetime]:
    """Return the moments at which clocks of this zone show this time: one, two or none."""
    first = local.replace(tzinfo=zone).astimezone(UTC)
    second = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if first == second:
        return [first]
    # For a time in a gap, fold=1 gives the earlier moment.
    return [first, second] if first < second else []


def _first(times: Iterator[datetime], start: datetime, zone: tzinfo) -> datetime | None:
    return next((moment for local in times for moment in _moments(local, zone) if moment > start), None)


def _end_of_gap(local: datetime, zone: tzinfo) -> datetime:
    """Return the first moment after the gap that contains this time, to the second."""
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    offset = before.astimezone(zone).utcoffset()
    low, high = 0, int((local.replace(tzinfo=zone).astimezone(UTC) - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if (before + timedelta(seconds=middle)).astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return before + timedelta(seconds=high)


def zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name of a folder, such as "Europe"
        detail = f'unknown time zone "{name[:64]}"; use "UTC" or a zone of this machine, such as "Europe/Berlin"'
        raise OperationError("invalid", detail) from None


# ---------------------------------------------------------------- parsing


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an expression: its range, and the names that stand for numbers from `names_from` on."""

    name: str
    low: int
    high: int
    example: str
    names: tuple[str, ...] = ()
    names_from: int = 0


MINUTES = Field("minute", 0, 59, '"*/15" or "0,30"')
HOURS = Field("hour", 0, 23, '"*", "9-17" or "*/2"')
DAYS = Field("day of month", 1, 31, '"1,15" or "L" for the last')
MONTH = Field("month", 1, 12, '"1-6" or "JAN,JUL"', MONTHS, 1)
WEEKDAY = Field("day of week", 0, 7, '"MON-FRI" or "0" for Sunday', WEEKDAYS)
FIELDS = (MINUTES, HOURS, DAYS, MONTH, WEEKDAY)


def parse(text: str) -> Cron:
    """Parse an expression. Raises ValueError with the field, the error and a valid example."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the cron expression has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    expression = text.strip()
    if expression.startswith("@"):
        if expression.lower() not in NICKNAMES:
            raise ValueError(f'unknown cron nickname "{expression}"; allowed are {", ".join(NICKNAMES)}')
        expression = NICKNAMES[expression.lower()]
    parts = expression.split()
    if len(parts) != len(FIELDS):
        names = ", ".join(each.name for each in FIELDS)
        raise ValueError(
            f'"{expression}" has {_count(len(parts))}; a cron expression has five: {names}; '
            'for example "30 4 * * MON-FRI", at 4:30 on working days'
        )
    minutes, hours, days, months, weekdays = (
        _values(part, which, expression) for part, which in zip(parts, FIELDS, strict=True)
    )
    is_either_day = not (parts[2].startswith("*") or parts[4].startswith("*"))
    weekdays = tuple(sorted({each % 7 for each in weekdays}))  # Sunday is 0 and 7
    return Cron(text.strip(), minutes, hours, days, months, weekdays, is_either_day)


def _count(fields: int) -> str:
    return "1 field" if fields == 1 else f"{fields} fields"


def _values(text: str, which: Field, expression: str) -> tuple[int, ...]:
    found: set[int] = set()
    try:
        for item in text.split(","):
            found.update(_item(item, which))
    except ValueError as error:
        context = f' of "{expression}"' if text != expression else ""
        raise ValueError(f'{which.name} "{text}"{context}: {error}; use for example {which.example}') from None
    return tuple(sorted(found))


def _item(item: str, which: Field) -> range:
    """Parse `*`, `5` or `1-5`, with or without a step; `5/10` goes from 5 to the end."""
    if which is DAYS and item.upper() == "L":
        return range(LAST_DAY, LAST_DAY + 1)
    span, slash, step_text = item.partition("/")
    step = _step(step_text, which) if slash else 1
    top = 6 if which is WEEKDAY else which.high  # 7 is Sunday, too; a whole week has it once
    if span == "*":
        return range(which.low, top + 1, step)
    low_text, dash, high_text = span.partition("-")
    low = _number(low_text, which)
    if not dash:
        return range(low, max(low, top) + 1, step) if slash else range(low, low + 1)
    high = _number(high_text, which)
    if which is WEEKDAY and high == 0 < low:
        high = 7  # FRI-SUN
    if low > high:
        raise ValueError(f'"{span}" ends before it begins; to wrap around, write "{low}-{top},{which.low}-{high}"')
    return range(low, high + 1, step)


def _step(text: str, which: Field) -> int:
    most = which.high - which.low
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= most:
        raise ValueError(f'step "/{text}" is not a number from 1 to {most}')
    return int(text)


def _number(text: str, which: Field) -> int:
    if text.upper() in which.names:
        return which.names.index(text.upper()) + which.names_from
    if not (text.isascii() and text.isdecimal()) or not which.low <= int(text) <= which.high:
        names = f" or {which.names[0]} to {which.names[-1]}" if which.names else ""
        raise ValueError(f'"{text}" is not a number from {which.low} to {which.high}{names}')
    return int(text)
