"""Arguments and results of tasks: types that survive the way, and errors that name the parameter."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, Field, RootModel

from case_tables import check_every_row
from dragoman import Context, WrongArguments
from dragoman import task as dragoman_task
from dragoman.tasks.arguments import TaskSignature
from dragoman.tasks.formats import FORMATS
from dragoman.tasks.retries import NamedRules


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Line(msgspec.Struct):
    start: Point
    end: Point | None = None


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)


class Meeting(BaseModel, strict=True):
    """A strict model takes no text for a date, except from JSON."""

    start: datetime
    people: list[Person]


class Numbers(RootModel[list[int]]): ...


@dataclasses.dataclass
class Fraction:
    """A type whose own check raises something else than ValueError."""

    top: int
    bottom: int

    def __post_init__(self) -> None:
        self.value = self.top / self.bottom


NOON = datetime(2026, 11, 16, 12, 0, 0, 5, UTC)
VALUES: list[tuple[Any, Any]] = [
    (int, 2**53),
    (float, 0.1),
    (str, "ä\x00€"),
    (bytes, bytes(range(256))),
    (bool, True),
    (type(None), None),
    (list[int], [1, 2]),
    (dict[str, Point], {"a": Point(1, 2)}),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (Point, Point(3)),
    (Line, Line(Point(1), Point(2, 3))),
    (Colour, Colour.RED),
    (Literal["a", "b"], "a"),
    (datetime, NOON),
    (date, NOON.date()),
    (timedelta, timedelta(seconds=1.5)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (int | None, None),
    (Any, {"a": [1, None]}),
    (Person, Person(name="Ada", age=36)),
    (list[Person], [Person(name="Ada", age=36)]),
    (Person | None, Person(name="Ada", age=36)),
    (Meeting, Meeting(start=NOON, people=[Person(name="Ada", age=36)])),
    (Numbers, Numbers([1, 2])),
    (object, {"a": [1, None]}),
    (Sequence[int], [1, 2]),
    (dict[int, str], {1: "one"}),
    (Fraction, Fraction(1, 2)),
    (Annotated[int, msgspec.Meta(ge=0)], 0),
]


def signature(function: Callable[..., Any], format: str = "json") -> TaskSignature:
    return TaskSignature("t", function, FORMATS[format])


def test_every_type_survives_in_every_format() -> None:
    def check(format: str, kind: Any, value: Any) -> None:
        def function(value: Any) -> Any: ...

        function.__annotations__ = {"value": kind, "return": kind}
        task = signature(function, format)
        assert task.decode(task.encode((value,), {})) == ([value], {}, None)
        assert task.decode_result(task.encode_result(value)) == value

    check_every_row(check, [(format, *row) for format in FORMATS for row in VALUES])


def many(a: int, /, b: int = 2, *rest: int, c: str, d: str = "d", **more: int) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "sent", "called"),
    [
        ((1,), {"c": "x"}, {"a": 1, "c": "x"}, ([1], {"c": "x"})),
        ((1, 3, 4, 5), {"c": "x"}, {"a": 1, "b": 3, "rest": [4, 5], "c": "x"}, ([1, 3, 4, 5], {"c": "x"})),
        ((1,), {"c": "x", "z": 9}, {"a": 1, "c": "x", "more": {"z": 9}}, ([1], {"c": "x", "z": 9})),
        ((1,), {"b": 7, "c": "x", "d": "y"}, {"a": 1, "b": 7, "c": "x", "d": "y"}, ([1, 7], {"c": "x", "d": "y"})),
    ],
)
def test_arguments_are_sent_by_name_without_defaults(args: Any, kwargs: Any, sent: Any, called: Any) -> None:
    task = signature(many)
    payload = task.encode(args, kwargs)
    assert msgspec.json.decode(payload) == sent
    assert task.decode(payload) == (*called, None)
    found, named, _ = task.decode(payload)
    many(*found, **named)


def plain(a: int, point: Point, b: int = 1) -> None: ...


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b'{"a":"x","point":{"x":1}}', "argument 'a' of t: expected `int`, got `str`"),
        (b'{"a":1,"point":{"x":[]}}', "argument 'point' of t: expected `int`, got `array`, at point.x"),
        (b'{"a":1}', "argument 'point' of t is missing"),
        (b'{"a":1,"point":{}}', "argument 'point' of t: object missing required field `x`"),
        (b'{"a":1,"point":{"x":1},"z":1}', "t has no parameter 'z'; its parameters: a, point, b"),
        (b"[1]", "the arguments of t cannot be decoded: Expected `object`, got `array`; expected an object of names"),
        (b"{", "the arguments of t cannot be decoded: Input data was truncated"),
        (b'{"\xff":1}', "the arguments of t cannot be decoded"),
    ],
)
def test_wrong_arguments_name_the_parameter(payload: bytes, problem: str) -> None:
    with pytest.raises(WrongArguments, match=r"^" + re.escape(problem)):
        signature(plain).decode(payload)


@pytest.mark.parametrize(
    ("payload", "unknown", "problem"),
    [
        (
            b'{"a":1,"point":{"x":1},"z":1,"y":2}',
            ("z", "y"),
            "t has no parameters 'z', 'y'; its parameters: a, point, b",
        ),
        (b'{"a":"wrong","z":1}', ("z",), "t has no parameter 'z'; its parameters: a, point, b"),
        (b'{"a":1,"@later":1,"point":{"x":1}}', (), "t has no parameter '@later'"),
        (b'{"a":1}', (), "argument 'point' of t is missing"),
        (b'{"a":1,"point":{"x":1},"%s":1}' % (b"z" * 257), (), "t has no parameter 'zzz"),
    ],
)
def test_worker_finds_all_names_that_are_no_parameters(payload: bytes, unknown: tuple[str, ...], problem: str) -> None:
    """R267: they may be those of a newer version, of which other arguments may differ, too. Keys with @ are none."""
    for format in FORMATS:
        with pytest.raises(WrongArguments, match=r"^" + re.escape(problem)) as refused:
            signature(plain, format).decode(FORMATS[format].encode(msgspec.json.decode(payload)))
        assert (refused.value.unknown, refused.value.known) == (unknown, ("a", "point", "b") if unknown else ())


ORIGIN = Point(0)


def test_parameters_are_declared_as_json_schema() -> None:
    """R267."""

    def function(a: int, point: Point, /, b: str = "x", *rest: float, c: Point = ORIGIN, d: Any = None) -> None: ...

    found = signature(function).schema()
    assert found["properties"] == {
        "a": {"type": "integer"},
        "point": {"$ref": "#/$defs/Point"},
        "b": {"type": "string", "default": "x"},
        "rest": {"type": "array", "items": {"type": "number"}},
        "c": {"$ref": "#/$defs/Point", "default": {"x": 0, "y": 0}},
        "d": {"default": None},
    }
    assert (found["required"], list(found["$defs"])) == (["a", "point"], ["Point"])


SENTINEL = object()


def test_type_without_a_schema_and_default_that_is_no_json_are_left_out() -> None:
    def function(a: Person, b: object = SENTINEL) -> None: ...

    assert signature(function).schema()["properties"] == {"a": {}, "b": {}}


def test_bytes_after_the_arguments_are_wrong_in_every_format() -> None:
    """A bug: CBOR ignored them."""

    def check(format: str) -> None:
        task = signature(plain, format)
        with pytest.raises(WrongArguments, match="trailing characters"):
            task.decode(task.encode((1, Point(2)), {}) + b"{}")

    check_every_row(check, [(each,) for each in FORMATS])


def half(of: int, by: Fraction) -> None: ...


def test_errors_of_a_type_s_own_check_name_the_parameter() -> None:
    """A bug: an exception other than ValueError and TypeError was no wrong argument, and the job was retried."""

    def check(format: str) -> None:
        task = signature(half, format)
        with pytest.raises(WrongArguments, match=r"^argument 'by' of t: ZeroDivisionError: division by zero$"):
            task.decode(task.encode((1, {"top": 1, "bottom": 0}), {}))

    check_every_row(check, [(each,) for each in FORMATS])


def test_rules_of_a_caller_are_no_arguments() -> None:
    def function(retry_on: int, _retry_on: int = 1) -> None: ...

    function.__annotations__ = {"retry_on": int, "_retry_on": int}
    task = signature(function).with_rules(NamedRules(("OSError",), ()))
    payload = task.encode((5, 6), {})
    assert msgspec.json.decode(payload) == {
        "retry_on": 5,
        "_retry_on": 6,
        "@retry_on": ["OSError"],
        "@never_retry_on": [],
    }
    assert signature(function).decode(payload) == ([5, 6], {}, NamedRules(("OSError",), ()))
    with pytest.raises(WrongArguments, match=r"^argument '@retry_on' of t: expected `array`, got `int`$"):
        signature(function).decode(b'{"retry_on":1,"@retry_on":5}')


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Iterable[int], "has the type collections.abc.Iterable, which cannot be decoded; use a dataclass"),
        (dict[str, list[complex]], "has the type builtins.complex, which cannot be decoded"),
        (Person | Meeting, "cannot be decoded: Type unions may not contain more than one custom type"),
    ],
)
def test_types_that_cannot_be_decoded_are_refused_at_once(kind: Any, problem: str) -> None:
    """A bug: the decorator accepted them, and every job failed."""

    def function(value: Any) -> Any: ...

    for name, what in (("value", "parameter 'value' of t"), ("return", "the result of t")):
        function.__annotations__ = {name: kind}
        with pytest.raises(TypeError, match=f"^{what} {re.escape(problem)}"):
            signature(function)


def test_values_that_cannot_be_decoded_are_refused_at_once() -> None:
    def numbers() -> Iterator[complex]:
        yield 1j

    with pytest.raises(TypeError, match=r"^the result of numbers has the type builtins.complex, which cannot be"):
        dragoman_task(numbers)


def test_methods_are_no_tasks() -> None:
    with pytest.raises((TypeError, RuntimeError)) as refused:  # a RuntimeError before Python 3.12

        class Shop:
            @dragoman_task
            def total(self, prices: list[int]) -> int:
                return sum(prices)

    assert "Shop.total is a method, which cannot be a task" in str(refused.value.__cause__ or refused.value)

    class Depot:
        @staticmethod
        @dragoman_task
        def total(prices: list[int]) -> int:
            return sum(prices)

    assert Depot.total([1, 2]) == 3


def test_methods_of_other_task_queues_are_answered_with_ours() -> None:
    task: Any = dragoman_task(plain)
    with pytest.raises(AttributeError, match=r"^'Task' object has no attribute 'delay'; use enqueue\(\.\.\.\)$"):
        task.delay(1)
    with pytest.raises(AttributeError, match=r"^'Task' object has no attribute 'other'$"):
        task.other(1)


def test_names_that_are_no_names_are_refused() -> None:
    with pytest.raises(TypeError, match=r"^name=5: must be a string$"):
        dragoman_task(name=5)(plain)  # type: ignore[call-overload]


def test_errors_of_a_model_name_the_parameter() -> None:
    def function(person: Person) -> None: ...

    function.__annotations__ = {"person": Person}
    with pytest.raises(
        WrongArguments, match=r"^argument 'person' of t: age: Input should be greater than or equal to 0$"
    ):
        signature(function).decode(b'{"person":{"name":"Ada","age":-1}}')


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1,), {}), ((1, 2, 3, 4), {}), ((1, 2), {"a": 1}), ((1, 2), {"z": 1})]
)
def test_callers_get_the_error_of_a_plain_call(args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError) as here:
        plain(*args, **kwargs)
    with pytest.raises(TypeError, match=r"^t: ") as there:
        signature(plain).encode(args, kwargs)
    assert type(here.value) is type(there.value)


def test_arguments_of_many_calls_differ_in_the_first_parameter() -> None:
    def check(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        task = signature(function)
        assert list(task.encode_each([1, 2], args, kwargs)) == [task.encode((n, *args), kwargs) for n in (1, 2)]

    check_every_row(check, [(plain, (Point(1),), {"b": 5}), (many, (3, 4), {"c": "x", "z": 1}), (any_number, (4,), {})])
    with pytest.raises(TypeError, match=r"^t: missing a required argument: 'point'"):
        signature(plain).encode_each([1], (), {})


def any_number(*numbers: int) -> None: ...


def test_arguments_after_a_gap_are_passed_by_name() -> None:
    def function(a: int = 1, b: int = 2) -> int:
        return 10 * a + b

    function.__annotations__ = {"a": int, "b": int}
    args, kwargs, _ = signature(function).decode(b'{"b":5}')
    assert function(*args, **kwargs) == 15


def test_context_is_no_argument() -> None:
    def function(ctx: Context, a: int) -> None: ...

    function.__annotations__ = {"ctx": Context, "a": int}
    task = signature(function)
    assert task.wants_context
    assert task.encode((1,), {}) == b'{"a":1}'


def test_context_must_come_first() -> None:
    def function(a: int, ctx: Context) -> None: ...

    function.__annotations__ = {"ctx": Context, "a": int}
    with pytest.raises(TypeError, match="parameter 'ctx' of t is a Context; the Context must be the first one"):
        signature(function)


def test_objects_of_unknown_types_are_refused() -> None:
    def function(a: Any) -> None: ...

    with pytest.raises(TypeError, match="the type object cannot be that of an argument or a result; use a dataclass"):
        signature(function).encode((object(),), {})
