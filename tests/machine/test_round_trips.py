"""Arguments and results of tasks arrive as they were sent, or are refused where they are sent."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as some
from pydantic import BaseModel

from case_tables import check_every_row
from dragoman import WrongArguments
from dragoman.tasks.arguments import TaskSignature
from dragoman.tasks.formats import FORMATS


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


class Name(str): ...


class Pair(NamedTuple):
    left: int
    right: str = ""


class Entry(TypedDict):
    a: int


@dataclasses.dataclass
class Point:
    x: int
    y: float | None = 0.0


@dataclasses.dataclass
class Counted:
    x: int
    count: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass(eq=False)
class Incomparable:
    x: Any


class Person(BaseModel):
    name: str
    height: float | None = None


def signature(kind: Any, format: str) -> TaskSignature:
    def function(value: Any) -> Any: ...

    function.__annotations__ = {} if kind is None else {"value": kind, "return": kind}
    return TaskSignature("t", function, FORMATS[format])


def arrives(kind: Any, format: str, value: Any) -> Any:
    """Return what a worker gets. The result takes the same way back. Raises WrongArguments."""
    task = signature(kind, format)
    try:
        payload = task.encode((value,), {})
    except (WrongArguments, TypeError):
        with pytest.raises((ValueError, TypeError, OverflowError, RecursionError)):
            task.encode_result(value)
        raise
    [arrived], _, _ = task.decode(payload)
    assert list(task.encode_each([value], (), {})) == [payload]
    returned = task.decode_result(task.encode_result(value))
    assert same(returned, arrived)
    return arrived


def same(one: Any, other: Any) -> bool:
    """Compare values with their types, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, datetime) and one.tzinfo is not None and other.tzinfo is not None:
        return one.astimezone(UTC) == other.astimezone(UTC)
    if isinstance(one, time):
        return (one.tzinfo is None) == (other.tzinfo is None) and one == other
    if isinstance(one, Decimal):
        return str(one) == str(other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(key in other and same(value, other[key]) for key, value in one.items())
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, each.name), getattr(other, each.name)) for each in dataclasses.fields(one))
    return bool(one == other)


OFFSETS = some.timedeltas(min_value=timedelta(hours=-23), max_value=timedelta(hours=23))
ZONES = some.one_of(some.none(), some.just(UTC), OFFSETS.map(timezone), some.just(ZoneInfo("Europe/Berlin")))
TEXTS = some.text(some.characters(exclude_categories=()), max_size=5)
NUMBERS = some.one_of(some.integers(), some.floats(), some.booleans())
SCALARS = some.one_of(
    some.none(),
    NUMBERS,
    TEXTS,
    some.binary(max_size=5),
    some.dates(),
    some.datetimes(timezones=ZONES),
    some.times(timezones=some.one_of(some.none(), some.just(UTC), OFFSETS.map(timezone))),
    some.timedeltas(),
    some.decimals(),
    some.uuids(),
    some.sampled_from([*Colour, *Size, Name("x"), Pair(1, "a"), Point(1), Counted(1), Person(name="Ada")]),
)
HASHABLES = some.one_of(some.none(), NUMBERS, TEXTS, some.sampled_from([*Colour, Size.SMALL]), some.dates())
VALUES = some.recursive(
    SCALARS,
    lambda inner: some.one_of(
        some.lists(inner, max_size=3),
        some.lists(inner, max_size=3).map(tuple),
        some.sets(HASHABLES, max_size=3),
        some.frozensets(HASHABLES, max_size=3),
        some.dictionaries(HASHABLES, inner, max_size=3),
        some.dictionaries(TEXTS, inner, max_size=3),
        inner.map(Incomparable),
    ),
    max_leaves=6,
)
QUICK = settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))


@QUICK
@given(VALUES, some.sampled_from(sorted(FORMATS)), some.sampled_from([None, Any, object]))
def test_a_value_without_a_type_arrives_as_it_is_or_is_refused(value: Any, format: str, kind: Any) -> None:
    """R223. NaN arrived as None, a tuple as a list, a time as text, and keys that differ in their type as one."""
    try:
        arrived = arrives(kind, format, value)
    except (WrongArguments, TypeError):
        return
    plain = value.value if isinstance(value, Size) else str(value) if isinstance(value, Name) else value
    assert same(arrived, plain) or (arrived == plain and _has_numbers_or_names(value))


def _has_numbers_or_names(value: Any) -> bool:
    """Members of IntEnum and subclasses of str arrive as the equal int and str."""
    return any(each in repr(value) for each in ("Size.SMALL", "'x'"))


TYPED: list[tuple[Any, some.SearchStrategy[Any]]] = [
    (int, some.integers()),
    (float, some.one_of(some.floats(), some.integers())),
    (float | None, some.one_of(some.floats(), some.none())),
    (str, TEXTS),
    (bytes, some.binary(max_size=5)),
    (datetime, some.datetimes(timezones=ZONES)),
    (date, some.dates()),
    (time, some.times(timezones=some.one_of(some.none(), some.just(UTC), OFFSETS.map(timezone)))),
    (timedelta, some.timedeltas()),
    (Decimal, some.decimals()),
    (UUID, some.uuids()),
    (Colour, some.sampled_from(Colour)),
    (Size, some.sampled_from(Size)),
    (Pair, some.builds(Pair, some.integers(), TEXTS)),
    (Point, some.builds(Point, some.integers(), some.one_of(some.none(), some.floats()))),
    (list[float], some.lists(some.floats(), max_size=3)),
    (tuple[int, ...], some.lists(some.integers(), max_size=3).map(tuple)),
    (set[int], some.sets(some.integers(), max_size=3)),
    (frozenset[str], some.frozensets(TEXTS, max_size=3)),
    (dict[str, float], some.dictionaries(TEXTS, some.floats(), max_size=3)),
    (dict[int, str], some.dictionaries(some.integers(), TEXTS, max_size=3)),
    (dict[float, str], some.dictionaries(some.floats(), TEXTS, max_size=3)),
    (dict[date, list[datetime]], some.dictionaries(some.dates(), some.lists(some.datetimes(timezones=ZONES)))),
    (Person, some.builds(Person, name=TEXTS, height=some.one_of(some.none(), some.floats()))),
    (Incomparable, some.builds(Incomparable, some.one_of(TEXTS, some.lists(some.floats())))),
]


@QUICK
@given(some.data(), some.sampled_from(sorted(FORMATS)), some.sampled_from(range(len(TYPED))))
def test_a_value_of_its_type_arrives_as_it_is_or_is_refused(data: some.DataObject, format: str, row: int) -> None:
    """R223. A datetime whose offset has seconds arrived as another instant, `float | None` made None of NaN."""
    kind, values = TYPED[row]
    value = data.draw(values)
    try:
        arrived = arrives(kind, format, value)
    except (WrongArguments, TypeError):
        assume(False)
    assert same(arrived, float(value) if kind is float else value)


def test_ordinary_values_are_not_refused() -> None:
    """R223: what a format can carry, it carries."""
    noon = datetime(2026, 3, 29, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    repeated = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)

    def check(format: str, kind: Any, value: Any, arrived: Any) -> None:
        assert same(arrives(kind, format, value), arrived)

    rows = [
        (None, {"a": [1, None, 1.5, True, "ä"]}),
        (datetime, noon),
        (datetime, repeated),
        (list[datetime], [noon, repeated]),
        (timedelta, timedelta(days=-3, microseconds=1)),
        (Decimal, Decimal("1.10")),
        (set[int], {1, 2}),
        (dict[int, str], {1: "one", 2: "two"}),
        (Incomparable, Incomparable([1])),
        (Colour, Colour.BLUE),
        (bytes, b"\0\xff"),
        (float, 1e308),
        (Person, Person(name="Ada")),
    ]
    coerced = [
        (float, 1, 1.0),
        (Sequence[int], (1, 2), [1, 2]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (set[int], frozenset({1}), {1}),
        (Point, {"x": 1}, Point(1)),
        (list[Point], [{"x": 1, "y": 2.0}], [Point(1, 2.0)]),
        (bytes, bytearray(b"a"), b"a"),
    ]
    check_every_row(check, [(format, kind, value, value) for format in FORMATS for kind, value in rows])
    check_every_row(check, [(format, *row) for format in FORMATS for row in coerced])


REFUSED: list[tuple[str, Any, Any, str]] = [
    ("json", None, math.nan, "argument 'value' of t: the float nan would arrive as None; annotate its exact type, or"),
    ("json", float | None, math.inf, "argument 'value' of t: the float inf would arrive as None"),
    ("json", float, math.nan, "argument 'value' of t: expected `float`, got `null`"),
    ("json", dict[str, Any], {"a": [1, math.nan]}, "the float nan would arrive as None, at ['a'][1]"),
    ("json", None, {"1": 2, 1: 3}, "the dict {'1': 2, 1: 3} would arrive as the dict {'1': 3}"),
    ("json", dict[str, int], {"1": 2, 1: 3}, "would arrive as the dict {'1': 3}"),
    ("json", None, {1: 2}, "the dict {1: 2} would arrive as the dict {'1': 2}"),
    ("json", None, (1, 2), "the tuple (1, 2) would arrive as the list [1, 2]"),
    ("cbor", None, (1, 2), "the tuple (1, 2) would arrive as the list [1, 2]"),
    ("msgpack", dict[str, Any], {"a": (1, 2)}, "would arrive as the list [1, 2], at ['a']"),
    ("json", None, {1, 2}, "the set {1, 2} would arrive as the list [1, 2]"),
    ("json", None, b"a", "would arrive as the str 'YQ=='"),
    ("json", None, Colour.RED, "would arrive as the str 'red'"),
    ("json", None, Point(1), "would arrive as the dict {'x': 1, 'y': 0.0}"),
    ("msgpack", None, 2**64, "argument 'value' of t cannot be encoded as msgpack"),
    ("json", str, "\ud800", "argument 'value' of t cannot be encoded as json"),
    ("cbor", str, "\ud800", "argument 'value' of t"),
    ("json", float, 2**53 + 1, "the int 9007199254740993 would arrive as the float 9007199254740992.0"),
    ("json", set[int], [1, 1], "the list [1, 1] would arrive as the set {1}"),
    ("json", Entry, {"a": 1, "b": 2}, "would arrive as the dict {'a': 1}"),
    ("json", int, "1", "argument 'value' of t: expected `int`, got `str`"),
    ("json", time, time(12, tzinfo=ZoneInfo("Europe/Berlin")), "argument 'value' of t: the time"),
    (
        "json",
        datetime,
        datetime(1890, 1, 1, tzinfo=timezone(timedelta(seconds=3208))),
        "argument 'value' of t: the datetime datetime.datetime(1890",
    ),
]


def test_values_that_cannot_be_carried_are_refused_with_a_sentence() -> None:
    """R223."""

    def check(format: str, kind: Any, value: Any, sentence: str) -> None:
        with pytest.raises(WrongArguments) as refused:
            arrives(kind, format, value)
        assert sentence in str(refused.value), str(refused.value)

    check_every_row(check, REFUSED)


def test_each_argument_is_compared_whatever_way_it_is_given() -> None:
    """R223: in `*args`, `**kwargs`, in each call of a group, and beside the results of other jobs."""

    def function(first: Any, *rest: float | None, **more: Any) -> None: ...

    function.__annotations__ = {"rest": float | None}
    task = TaskSignature("t", function, FORMATS["json"])
    for args, kwargs in (((1, math.nan), {}), ((1,), {"more": (1, 2)}), (((1, 2),), {})):
        with pytest.raises(WrongArguments, match="would arrive as"):
            task.encode(args, kwargs)

    def plain(first: Any, second: Any = None) -> None: ...

    task = TaskSignature("t", plain, FORMATS["json"])
    with pytest.raises(WrongArguments, match="argument 'first' of t"):
        list(task.encode_each([1, (1, 2)], (), {}))
    with pytest.raises(WrongArguments, match="argument 'second' of t"):
        list(task.encode_each([1, 2], ((1, 2),), {}))
    with pytest.raises(WrongArguments, match="argument 'second' of t"):
        task.encode_rest(1, ((1, 2),), {})
    assert msgspec.json.decode(task.encode_rest(1, ([1, 2],), {})) == {"second": [1, 2]}
