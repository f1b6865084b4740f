"""Cron expressions and intervals in words, such as `every day at 03:00, Europe/Vienna`."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.operations.cron import LAST_DAY, Cron

WEEK = (0, 1, 2, 3, 4, 5, 6)
WORKING_DAYS = (1, 2, 3, 4, 5)
WEEKDAY_NAMES = ("Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays")
MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
EVERY_DAY = "every day"
MOST_ITEMS = 4  # a longer list is not easier to read than the expression
UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def words_of(cron: Cron | None, timezone: str, every: float | None) -> str:
    """Return the cron expression in words; without one, the interval."""
    if cron is not None:
        return words_of_cron(cron, timezone)
    assert every is not None
    return words_of_interval(every)


def words_of_interval(seconds: float) -> str:
    """Return for example `every 5 minutes`."""
    for unit, length in UNITS:
        if seconds >= length and seconds % length == 0:
            return _every(int(seconds // length), unit)
    return f"every {seconds:g} seconds"


def words_of_cron(cron: Cron, timezone: str) -> str:
    """Return the expression in words, with the time zone if the times depend on it; the expression itself if words
    would not be easier to read."""
    days, times = _days(cron), _times(cron)
    if days is None or times is None:
        return f"{cron.text}, {timezone}"
    if times.startswith("at ") and len(cron.hours) < 24:
        return f"{days} {times}, {timezone}"
    if days == EVERY_DAY:
        return times if len(cron.hours) == 24 else f"{times}, {timezone}"
    return f"{times}, {days}, {timezone}"


def _times(cron: Cron) -> str | None:
    """Return the times of a day: `at 03:00`, `every 15 minutes`, `at minute 30 of every hour`."""
    minutes, hours = cron.minutes, cron.hours
    if len(hours) == 24:
        step = _step(minutes, 60)
        if step is not None:
            return _every(step, "minute") if step < 60 else "every hour"
        return f"at {_noun('minute', minutes)} of every hour" if len(minutes) <= MOST_ITEMS else None
    step = _step(hours, 24)
    if step is not None and len(minutes) == 1 and len(hours) > 2:
        return f"{_every(step, 'hour')} at minute {minutes[0]}" if minutes[0] else _every(step, "hour")
    clock = [f"{hour:02}:{minute:02}" for hour in hours for minute in minutes]
    if len(clock) <= MOST_ITEMS:
        return f"at {_listed(clock)}"
    step = _step(minutes, 60)
    if step is not None and list(hours) == list(range(hours[0], hours[-1] + 1)):
        return f"{_every(step, 'minute')} from {hours[0]:02}:00 to {hours[-1]:02}:{minutes[-1]:02}"
    if len(minutes) == 1 and list(hours) == list(range(hours[0], hours[-1] + 1)):
        return f"every hour from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[0]:02}"
    return None


def _days(cron: Cron) -> str | None:
    """Return the days: `every day`, `Mondays`, `on day 1 of every month`."""
    is_whole_month = len(cron.days) == 31
    is_whole_year = len(cron.months) == 12
    months = "every month" if is_whole_year else _listed([MONTH_NAMES[each - 1] for each in cron.months])
    if len(cron.months) > MOST_ITEMS and not is_whole_year:
        return None
    if cron.weekdays != WEEK:
        if not is_whole_month or len(cron.weekdays) > MOST_ITEMS + 1:
            return None
        names = "Mondays to Fridays" if cron.weekdays == WORKING_DAYS else _weekdays(cron.weekdays)
        return names if is_whole_year else f"{names} in {months}"
    if is_whole_month:
        return EVERY_DAY if is_whole_year else f"every day in {months}"
    if len(cron.days) > MOST_ITEMS:
        return None
    if cron.days == (LAST_DAY,):
        return f"on the last day of {months}"
    return None if LAST_DAY in cron.days else f"on {_noun('day', cron.days)} of {months}"


def _weekdays(days: Sequence[int]) -> str:
    return _listed([WEEKDAY_NAMES[each] for each in (*(day for day in days if day), *(day for day in days if not day))])


def _step(values: Sequence[int], size: int) -> int | None:
    """Return the distance of values that divide the whole range evenly, such as 0, 15, 30, 45; else None."""
    step = size // len(values)
    return step if list(values) == list(range(0, size, step)) and size % step == 0 else None


def _every(number: int, unit: str) -> str:
    return f"every {unit}" if number == 1 else f"every {number} {unit}s"


def _noun(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {_listed([str(each) for each in numbers])}"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
