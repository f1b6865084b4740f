"""Cron expressions: the next time, by tables and against a search minute by minute; daylight saving; errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.operations.cron import Cron, parse, zone_of
from dragoman.operations.schemas import OperationError

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def moment(text: str, zone: str = "UTC") -> datetime:
    """Parse `2024-03-31 02:30`, with or without an offset that selects one of two times."""
    read = datetime.fromisoformat(text)
    return read.astimezone(ZoneInfo(zone)) if read.tzinfo is not None else read.replace(tzinfo=ZoneInfo(zone))


def run_of(expression: str, after: str, count: int, zone: str) -> list[str]:
    """Return the next `count` matches, with offsets."""
    cron, at, found = parse(expression), moment(after, zone), []
    for _ in range(count):
        following = cron.next(at)
        assert following is not None
        at = following
        found.append(at.isoformat(sep=" ", timespec="minutes"))
    return found


# ---------------------------------------------------------------- plain time


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        # 15 May 2024 is a Wednesday.
        ("* * * * *", "2024-05-15 10:20", "2024-05-15 10:21"),
        ("* * * * *", "2024-05-15 10:20:59", "2024-05-15 10:21"),
        ("* * * * *", "2024-05-15 10:59", "2024-05-15 11:00"),
        ("* * * * *", "2024-12-31 23:59:59.999", "2025-01-01 00:00"),
        ("20 * * * *", "2024-05-15 10:19:59", "2024-05-15 10:20"),
        ("20 * * * *", "2024-05-15 10:20", "2024-05-15 11:20"),
        ("0 * * * *", "2024-05-15 23:00:01", "2024-05-16 00:00"),
        ("*/15 * * * *", "2024-05-15 10:20", "2024-05-15 10:30"),
        ("*/15 * * * *", "2024-05-15 10:45", "2024-05-15 11:00"),
        ("*/7 * * * *", "2024-05-15 10:56", "2024-05-15 11:00"),
        ("*/59 * * * *", "2024-05-15 10:20", "2024-05-15 10:59"),
        ("5/20 * * * *", "2024-05-15 10:20", "2024-05-15 10:25"),
        ("5/20 * * * *", "2024-05-15 10:45", "2024-05-15 11:05"),
        ("10-30/10 * * * *", "2024-05-15 10:20", "2024-05-15 10:30"),
        ("10-30/10 * * * *", "2024-05-15 10:30", "2024-05-15 11:10"),
        ("1,5,10-12 * * * *", "2024-05-15 10:05", "2024-05-15 10:10"),
        ("1,5,10-12 * * * *", "2024-05-15 10:12", "2024-05-15 11:01"),
        ("5,5,1 * * * *", "2024-05-15 10:01", "2024-05-15 10:05"),
        ("05 08 * * *", "2024-05-15 10:20", "2024-05-16 08:05"),
        ("0 9-17 * * *", "2024-05-15 17:00", "2024-05-16 09:00"),
        ("30 9-17/4 * * *", "2024-05-15 10:20", "2024-05-15 13:30"),
        ("0 */6 * * *", "2024-05-15 18:00", "2024-05-16 00:00"),
        ("0 */5 * * *", "2024-05-15 20:30", "2024-05-16 00:00"),
        ("59 23 * * *", "2024-05-15 23:59", "2024-05-16 23:59"),
        ("0 22-23,0-6 * * *", "2024-05-15 06:30", "2024-05-15 22:00"),
        ("0 0 1 * *", "2024-05-15 10:20", "2024-06-01 00:00"),
        ("0 0 31 * *", "2024-05-31 00:00", "2024-07-31 00:00"),
        ("0 0 30 * *", "2024-01-30 00:00", "2024-03-30 00:00"),
        ("0 12 1,15 * *", "2024-05-15 12:00", "2024-06-01 12:00"),
        ("0 0 */10 * *", "2024-05-21 00:00", "2024-05-31 00:00"),
        ("0 0 L * *", "2024-01-31 00:00", "2024-02-29 00:00"),
        ("0 0 L * *", "2023-02-01 00:00", "2023-02-28 00:00"),
        ("0 0 l 4 *", "2024-05-15 10:20", "2025-04-30 00:00"),
        ("0 0 15,L * *", "2024-05-15 00:00", "2024-05-31 00:00"),
        ("0 0 L 12 *", "2024-12-31 00:00", "2025-12-31 00:00"),
        ("0 0 1 1 *", "2024-05-15 10:20", "2025-01-01 00:00"),
        ("0 0 1 JAN *", "2024-05-15 10:20", "2025-01-01 00:00"),
        ("0 0 1 jan,Jul *", "2024-05-15 10:20", "2024-07-01 00:00"),
        ("0 0 1 SEP-NOV *", "2024-11-01 00:00", "2025-09-01 00:00"),
        ("0 0 1 */3 *", "2024-05-15 10:20", "2024-07-01 00:00"),
        ("0 0 1 2/5 *", "2024-07-01 00:00", "2024-12-01 00:00"),
        # leap days
        ("0 0 29 2 *", "2023-01-01 00:00", "2024-02-29 00:00"),
        ("0 0 29 2 *", "2024-02-29 00:00", "2028-02-29 00:00"),
        ("0 0 29 2 *", "2096-02-29 00:00", "2104-02-29 00:00"),
        ("0 0 29 FEB *", "1996-02-29 00:00", "2000-02-29 00:00"),
        ("0 0 L 2 *", "2024-03-01 00:00", "2025-02-28 00:00"),
        ("0 0 29 2 */7", "2088-02-29 00:00", "2128-02-29 00:00"),  # and a Sunday
        # days of the week
        ("0 0 * * 0", "2024-05-15 10:20", "2024-05-19 00:00"),
        ("0 0 * * 7", "2024-05-15 10:20", "2024-05-19 00:00"),
        ("0 0 * * SUN", "2024-05-19 00:00", "2024-05-26 00:00"),
        ("0 0 * * mon", "2024-05-15 10:20", "2024-05-20 00:00"),
        ("0 0 * * MON-FRI", "2024-05-17 00:00", "2024-05-20 00:00"),
        ("0 0 * * 1-5", "2024-05-15 10:20", "2024-05-16 00:00"),
        ("0 0 * * 5-7", "2024-05-18 00:00", "2024-05-19 00:00"),
        ("0 0 * * SAT-SUN", "2024-05-19 00:00", "2024-05-25 00:00"),
        ("0 0 * * 6/1", "2024-05-18 00:00", "2024-05-25 00:00"),  # to the week's end, and that is Saturday
        ("0 0 * * TUE,THU", "2024-05-15 10:20", "2024-05-16 00:00"),
        ("0 0 * * */2", "2024-05-15 10:20", "2024-05-16 00:00"),
        ("0 0 * * */2", "2024-05-18 00:00", "2024-05-19 00:00"),
        ("30 4 * 2 MON", "2024-05-15 10:20", "2025-02-03 04:30"),
        # both kinds of day: either of the two
        ("0 0 13 * FRI", "2024-05-15 10:20", "2024-05-17 00:00"),
        ("0 0 13 * FRI", "2024-06-07 00:00", "2024-06-13 00:00"),
        ("30 4 1,15 * 5", "2024-05-10 04:30", "2024-05-15 04:30"),
        ("0 0 L * MON", "2024-05-27 00:00", "2024-05-31 00:00"),
        ("0 0 30 2 MON", "2024-05-15 10:20", "2025-02-03 00:00"),
        # unless one of them begins with a star: both
        ("0 0 */2 * MON", "2024-05-15 10:20", "2024-05-27 00:00"),
        ("0 0 1-7 * */7", "2024-05-15 10:20", "2024-06-02 00:00"),
        ("0 0 *,13 * FRI", "2024-05-15 10:20", "2024-05-17 00:00"),
        # nicknames
        ("@hourly", "2024-05-15 10:20", "2024-05-15 11:00"),
        ("@daily", "2024-05-15 10:20", "2024-05-16 00:00"),
        ("@midnight", "2024-05-15 10:20", "2024-05-16 00:00"),
        ("@weekly", "2024-05-15 10:20", "2024-05-19 00:00"),
        ("@monthly", "2024-05-15 10:20", "2024-06-01 00:00"),
        ("@Yearly", "2024-05-15 10:20", "2025-01-01 00:00"),
        (" @annually ", "2024-05-15 10:20", "2025-01-01 00:00"),
        ("  0\t12  *   *  * ", "2024-05-15 10:20", "2024-05-15 12:00"),
    ],
)
def test_next_moment(expression: str, after: str, expected: str) -> None:
    assert parse(expression).next(moment(after)) == moment(expected)


@pytest.mark.parametrize(
    "expression",
    ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "* * 30-31 FEB *", "0 0 31 2/9 */2"],  # 2/9: February and November
)
def test_some_never_come(expression: str) -> None:
    assert parse(expression).next(moment("2024-05-15 10:20")) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [("@daily", "0 0 * * *"), ("0 0 * * 7", "0 0 * * sun"), ("*/30 * * * *", "30,0 * * * *")],
)
def test_two_ways_to_say_the_same_are_equal(one: str, other: str) -> None:
    assert parse(one) == parse(other)


def test_what_was_written_is_kept() -> None:
    assert parse(" @daily ").text == "@daily"


# ---------------------------------------------------------------- when the clocks change


@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        # Berlin, 31 March 2024: after 01:59 comes 03:00
        ("30 2 * * *", BERLIN, "2024-03-30 12:00", ["2024-03-31 03:00+02:00", "2024-04-01 02:30+02:00"]),
        ("0 2 * * *", BERLIN, "2024-03-30 12:00", ["2024-03-31 03:00+02:00", "2024-04-01 02:00+02:00"]),
        ("59 1 * * *", BERLIN, "2024-03-30 12:00", ["2024-03-31 01:59+01:00", "2024-04-01 01:59+02:00"]),
        ("0 3 * * *", BERLIN, "2024-03-30 12:00", ["2024-03-31 03:00+02:00", "2024-04-01 03:00+02:00"]),
        ("*/20 2 * * *", BERLIN, "2024-03-31 00:00", ["2024-03-31 03:00+02:00", "2024-04-01 02:00+02:00"]),
        (
            "30 1-3 * * *",
            BERLIN,
            "2024-03-31 00:00",
            ["2024-03-31 01:30+01:00", "2024-03-31 03:00+02:00", "2024-03-31 03:30+02:00", "2024-04-01 01:30+02:00"],
        ),
        (
            "*/30 * * * *",
            BERLIN,
            "2024-03-31 01:00",
            ["2024-03-31 01:30+01:00", "2024-03-31 03:00+02:00", "2024-03-31 03:30+02:00"],
        ),
        ("45 * * * *", BERLIN, "2024-03-31 01:00", ["2024-03-31 01:45+01:00", "2024-03-31 03:45+02:00"]),
        ("30 2 31 3 *", BERLIN, "2024-03-01 00:00", ["2024-03-31 03:00+02:00", "2025-03-31 02:30+02:00"]),
        # Berlin, 27 October 2024: after 02:59 comes 02:00 again
        ("30 2 * * *", BERLIN, "2024-10-26 12:00", ["2024-10-27 02:30+02:00", "2024-10-28 02:30+01:00"]),
        ("30 2 * * *", BERLIN, "2024-10-27 02:10+01:00", ["2024-10-28 02:30+01:00"]),
        ("30 2 * * *", BERLIN, "2024-10-27 02:50+02:00", ["2024-10-28 02:30+01:00"]),
        ("0 3 * * *", BERLIN, "2024-10-27 02:50+02:00", ["2024-10-27 03:00+01:00"]),
        ("0,30 2,3 * * *", BERLIN, "2024-10-27 02:00+02:00", ["2024-10-27 02:30+02:00", "2024-10-27 03:00+01:00"]),
        (
            "*/30 * * * *",
            BERLIN,
            "2024-10-27 02:00+02:00",
            [
                "2024-10-27 02:30+02:00",
                "2024-10-27 02:00+01:00",
                "2024-10-27 02:30+01:00",
                "2024-10-27 03:00+01:00",
            ],
        ),
        (
            "0 * * * *",
            BERLIN,
            "2024-10-27 01:00",
            ["2024-10-27 02:00+02:00", "2024-10-27 02:00+01:00", "2024-10-27 03:00+01:00"],
        ),
        ("0 * 28 10 *", BERLIN, "2024-10-27 02:30+02:00", ["2024-10-28 00:00+01:00"]),
        ("0 * 1 4 *", BERLIN, "2024-01-15 00:00", ["2024-04-01 00:00+02:00", "2024-04-01 01:00+02:00"]),
        # New York, 10 March 2024: after 01:59 comes 03:00; 3 November: after 01:59 comes 01:00 again
        ("15 2 * * *", NEW_YORK, "2024-03-09 12:00", ["2024-03-10 03:00-04:00", "2024-03-11 02:15-04:00"]),
        ("15 2 * * SUN", NEW_YORK, "2024-03-09 12:00", ["2024-03-10 03:00-04:00", "2024-03-17 02:15-04:00"]),
        ("15 1 * * *", NEW_YORK, "2024-11-02 12:00", ["2024-11-03 01:15-04:00", "2024-11-04 01:15-05:00"]),
        (
            "15 * * * *",
            NEW_YORK,
            "2024-11-03 00:30",
            ["2024-11-03 01:15-04:00", "2024-11-03 01:15-05:00", "2024-11-03 02:15-05:00"],
        ),
        ("0 9 * * MON-FRI", NEW_YORK, "2024-03-08 09:00", ["2024-03-11 09:00-04:00"]),
        # where midnight is left out (Cairo, 26 April 2024), and where it comes twice (Havana, 3 November 2024)
        ("@daily", "Africa/Cairo", "2024-04-25 12:00", ["2024-04-26 01:00+03:00", "2024-04-27 00:00+03:00"]),
        ("@daily", "America/Havana", "2024-11-02 12:00", ["2024-11-03 00:00-04:00", "2024-11-04 00:00-05:00"]),
        # half an hour (Lord Howe, 7 April and 6 October 2024), and a whole day that never was (Apia, 30 December 2011)
        ("45 1 * * *", "Australia/Lord_Howe", "2024-04-06 12:00", ["2024-04-07 01:45+11:00", "2024-04-08 01:45+10:30"]),
        ("10 2 * * *", "Australia/Lord_Howe", "2024-10-05 12:00", ["2024-10-06 02:30+11:00", "2024-10-07 02:10+11:00"]),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29 12:00", ["2011-12-31 00:00+14:00", "2011-12-31 12:00+14:00"]),
    ],
)
def test_when_the_clocks_change(expression: str, zone: str, after: str, expected: list[str]) -> None:
    assert run_of(expression, after, len(expected), zone) == expected


def test_result_is_in_the_zone_that_was_asked_in() -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    found = parse("0 9 * * *").next(datetime(2024, 5, 15, 12, tzinfo=tokyo))
    assert found == datetime(2024, 5, 16, 9, tzinfo=tokyo)
    assert found is not None
    assert found.tzinfo is tokyo


def test_a_quarter_of_an_hour_is_one_all_year() -> None:
    cron, at = parse("*/15 * * * *"), moment("2024-01-01 00:00", BERLIN)
    for _ in range(366 * 96):
        following = cron.next(at)
        assert following is not None
        assert following.timestamp() - at.timestamp() == 900.0
        at = following


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, "Australia/Lord_Howe"])
def test_every_day_has_one_run_all_year(zone: str) -> None:
    for minutes in range(0, 240, 10):
        cron, at = parse(f"{minutes % 60} {minutes // 60} * * *"), moment("2023-12-31 12:00", zone)
        days = []
        for _ in range(366):
            following = cron.next(at)
            assert following is not None
            at = following
            days.append(at.date())
        assert days == [datetime(2024, 1, 1).date() + timedelta(days=number) for number in range(366)]


# ---------------------------------------------------------------- against a search minute by minute


def a_field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    step = st.integers(1, high - low)
    stepped = st.tuples(st.one_of(st.just("*"), span), step).map(lambda both: f"{both[0]}/{both[1]}")
    item = st.one_of(number.map(str), span, stepped)
    return st.one_of(st.just("*"), st.lists(item, min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(a_field(0, 59), a_field(0, 23), a_field(1, 31), a_field(1, 12), a_field(0, 7)).map(" ".join)


def matches(cron: Cron, local: datetime) -> bool:
    of_month = local.day in cron.days
    of_week = local.isoweekday() % 7 in cron.weekdays
    return (
        local.minute in cron.minutes
        and local.hour in cron.hours
        and local.month in cron.months
        and (of_month or of_week if cron.is_either_day else of_month and of_week)
    )


def brute(cron: Cron, after: datetime, minutes: int) -> datetime | None:
    at = after.replace(second=0, microsecond=0)
    for _ in range(minutes):
        at += timedelta(minutes=1)
        if matches(cron, at):
            return at
    return None


@given(expression=EXPRESSIONS, after=st.datetimes(datetime(1990, 1, 1), datetime(2110, 1, 1)))
@settings(derandomize=True, deadline=None, max_examples=250)
def test_next_is_later_and_matches_and_nothing_between_does(expression: str, after: datetime) -> None:
    """Nothing matches within two days after the start, nor within two days before the match."""
    cron, start = parse(expression), after.replace(tzinfo=UTC)
    window = 2 * 24 * 60
    found, expected = cron.next(start), brute(cron, start, window)
    if expected is not None:
        assert found == expected
    elif found is not None:
        assert found > start
        assert brute(cron, max(start, found - timedelta(minutes=window)), window) == found
    else:
        days = (datetime(2024, 1, 1, cron.hours[0], cron.minutes[0]) + timedelta(days=number) for number in range(366))
        assert not any(matches(cron, day) for day in days)


CHANGES = st.sampled_from(
    [
        (BERLIN, datetime(2024, 3, 31, 1)),
        (BERLIN, datetime(2024, 10, 27, 1)),
        (NEW_YORK, datetime(2024, 3, 10, 7)),
        (NEW_YORK, datetime(2024, 11, 3, 6)),
        ("Australia/Lord_Howe", datetime(2024, 4, 6, 15)),
        ("Australia/Lord_Howe", datetime(2024, 10, 5, 15, 30)),
        ("America/Havana", datetime(2024, 11, 3, 5)),
        ("Africa/Cairo", datetime(2024, 4, 25, 22)),
    ]
)


def brute_on_the_wall(cron: Cron, after: datetime, minutes: int) -> datetime | None:
    """Search minute by minute in real time: the local time, and the times that the clocks have just skipped or shown
    before."""
    zone = after.tzinfo
    assert zone is not None
    at = after.astimezone(UTC).replace(second=0, microsecond=0)
    is_interval = len(cron.hours) == 24
    for _ in range(minutes):
        before, at = at.astimezone(zone).replace(tzinfo=None), at + timedelta(minutes=1)
        shown = at.astimezone(zone)
        local = shown.replace(tzinfo=None)
        if is_interval:
            if matches(cron, local):
                return shown
        elif not shown.fold:
            new = [before + timedelta(minutes=each + 1) for each in range(int((local - before).total_seconds() // 60))]
            if any(matches(cron, each) for each in new or [local]):
                return shown
    return None


@given(
    minute=a_field(0, 59),
    hour=st.one_of(st.just("*"), a_field(0, 4), a_field(0, 23)),
    day=st.sampled_from(["* * *", "* * SUN", "* * SAT,MON", "1-29 * *", "31 * *"]),
    change=CHANGES,
    ahead=st.integers(0, 36 * 3600),
)
@settings(derandomize=True, deadline=None, max_examples=400)
def test_next_is_right_around_every_change(
    minute: str, hour: str, day: str, change: tuple[str, datetime], ahead: int
) -> None:
    zone, run_once = change
    cron = parse(f"{minute} {hour} {day}")
    after = (run_once.replace(tzinfo=UTC) + timedelta(hours=6, seconds=-ahead)).astimezone(ZoneInfo(zone))
    window = 48 * 60
    found, expected = cron.next(after), brute_on_the_wall(cron, after, window)
    if expected is not None:
        assert found is not None
        assert found.astimezone(UTC) == expected.astimezone(UTC)
    else:
        assert found is None or found.timestamp() > after.timestamp() + (window - 1) * 60


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("", '"" has 0 fields'),
        ("5", '"5" has 1 field;'),
        ("* * * *", '"* * * *" has 4 fields; a cron expression has five: minute, hour, day of month, month, day'),
        ("0 * * * * *", "has 6 fields"),
        (
            "60 * * * *",
            'minute "60" of "60 * * * *": "60" is not a number from 0 to 59; use for example "*/15" or "0,30"',
        ),
        ("* 24 * * *", 'hour "24" of "* 24 * * *": "24" is not a number from 0 to 23; use for example'),
        ("* * 0 * *", 'day of month "0" of "* * 0 * *": "0" is not a number from 1 to 31'),
        ("* * 32 * *", '"32" is not a number from 1 to 31'),
        ("* * * 13 *", '"13" is not a number from 1 to 12 or JAN to DEC'),
        ("* * * MON *", 'month "MON"'),
        ("* * * * 8", '"8" is not a number from 0 to 7 or SUN to SAT'),
        ("* * * * L", 'day of week "L"'),
        ("* L * * *", 'hour "L"'),
        ("* * L-3 * *", 'day of month "L-3"'),
        ("*/0 * * * *", 'step "/0" is not a number from 1 to 59'),
        ("*/90 * * * *", 'step "/90" is not a number from 1 to 59'),
        ("*/ * * * *", 'step "/" is not a number'),
        ("*/x * * * *", 'step "/x" is not a number'),
        ("1/2/3 * * * *", 'step "/2/3" is not a number'),
        ("* 22-6 * * *", '"22-6" ends before it begins; to wrap around, write "22-23,0-6"'),
        ("* * * NOV-FEB *", 'write "11-12,1-2"'),
        ("-5 * * * *", '"" is not a number'),
        ("5- * * * *", '"" is not a number'),
        ("1-2-3 * * * *", '"2-3" is not a number'),
        ("1,,2 * * * *", '"" is not a number'),
        ("*5 * * * *", '"*5" is not a number'),
        ("² * * * *", '"²" is not a number'),
        ("١ * * * *", '"١" is not a number'),
        ("+5 * * * *", '"+5" is not a number'),
        ("1.5 * * * *", '"1.5" is not a number'),
        ("* * * * MONDAY", '"MONDAY" is not a number'),
        ("@reboot", 'unknown cron nickname "@reboot"; allowed are @hourly, @daily'),
        ("* " * 200, "the cron expression has 400 characters; at most 256 are allowed"),
    ],
)
def test_error_names_the_field_and_a_valid_example(expression: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"cron expression|cron nickname|use for example") as caught:
        parse(expression)
    assert sentence in str(caught.value)


@given(st.text(alphabet="0123456789*,-/@LJANMO² \t", max_size=30))
@settings(derandomize=True, deadline=None, max_examples=500)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        cron = parse(text)
    except ValueError:
        return
    assert cron.minutes
    assert cron.hours


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "Europe", "../../etc/passwd", "/etc/localtime", "a\0b", "x" * 999]
)
def test_unknown_zone_is_an_error(name: str) -> None:
    with pytest.raises(OperationError, match='; use "UTC" or a zone of this machine') as caught:
        zone_of(name)
    assert caught.value.problem.kind == "invalid"


def test_known_zones_are_found() -> None:
    assert zone_of("UTC").key == "UTC"
    assert zone_of(BERLIN).key == BERLIN
