"""Refuses arguments and results that a format would change.

No format has all values of Python: JSON has no NaN, and writes it as `null`; keys of its objects are strings, so that
`{"1": 2, 1: 3}` loses an entry; the offset of a time has whole minutes; and without an annotation, a tuple arrives as a
list. So a value that is not plainly safe is decoded once more, as the other side will do, and compared: it arrives
equal, with the type of the annotation, or it is refused where it is made.

Where the annotation names the types, a list may stand for a tuple, and a dict for an object, because that is what the
annotation promises. Where it leaves them open (`Any`, `object`, or none), a value must arrive as it is.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec
from msgspec.inspect import AnyType, DateTimeType, TimeType, Type, type_info

from dragoman.tasks.formats import Format, to_builtin

OPEN: Final = (Any, object)
SCALARS: Final = (NoneType, bool, int, float, str)
LISTS: Final = (list, tuple)
SETS: Final = (set, frozenset)
BYTES: Final = (bytes, bytearray, memoryview)
_REPR: Final = reprlib.Repr()
_REPR.maxother = _REPR.maxstring = 80  # characters of one value in a sentence
Difference = tuple[str, Any, Any]  # place, the value there, and the one that would arrive


class Comparison:
    """Compares values with those that arrive, for one annotation."""

    def __init__(self, kind: Any, format: Format) -> None:
        self.plain = _plain_types(kind, format.name)  # values of exactly these types arrive as they are, except NaN
        found = list(_types_in(type_info(kind), set()))
        self._is_open = kind in OPEN or any(isinstance(each, AnyType) for each in found)
        # Equal times may differ in whether they have a time zone.
        self._is_equality_enough = not any(isinstance(each, DateTimeType | TimeType) for each in found)
        self._format = format

    def problem(self, sent: Any, arrived: Any) -> str:
        """Return a sentence about a value that would arrive changed, or no text."""
        with suppress(Exception):  # such as that of a signalling NaN, or of the user's own __eq__
            if self._is_equality_enough and sent == arrived:
                return ""
        found = self._difference(sent, arrived, "")
        if found is None:
            return ""
        place, one, other = found
        at = f", at {place}" if place else ""
        return (
            f"{_named(one)} would arrive as {_named(other)}{at}; annotate its exact type, or pass a value that "
            f"{self._format.name} has"
        )

    def _difference(self, sent: Any, arrived: Any, place: str) -> Difference | None:
        """Return the first difference; None if there is none."""
        here = (place, sent, arrived)
        if isinstance(sent, LISTS):
            if isinstance(arrived, LISTS):
                if self._is_open and isinstance(sent, tuple) is not isinstance(arrived, tuple):
                    return here
                return self._first(sent, arrived, place) if len(sent) == len(arrived) else here
            return None if not self._is_open and _is_same_set(sent, arrived) else here
        if isinstance(sent, SETS):
            return None if _is_same_set(sent, arrived, is_open=self._is_open) else here
        if isinstance(sent, Mapping):
            if not isinstance(arrived, Mapping):
                is_promised = not self._is_open and _is_part(_built(sent), _built(arrived))
                return None if is_promised else here
            if len(sent) != len(arrived) or any(key not in arrived for key in sent):
                return here
            pairs = ((f"{place}[{_short(key)}]", value, arrived[key]) for key, value in sent.items())
            return next((each for pair in pairs if (each := self._difference(pair[1], pair[2], pair[0]))), None)
        if _is_equal(sent, arrived):
            return None
        if type(sent) is type(arrived) and (names := _fields(sent)):
            pairs = ((f"{place}.{name}", getattr(sent, name), getattr(arrived, name)) for name in names)
            return next((each for pair in pairs if (each := self._difference(pair[1], pair[2], pair[0]))), None)
        return here

    def _first(self, sent: Any, arrived: Any, place: str) -> Difference | None:
        for index, (one, other) in enumerate(zip(sent, arrived, strict=True)):
            found = self._difference(one, other, f"{place}[{index}]")
            if found is not None:
                return found
        return None


class ResultEncoder:
    """Encodes values of one annotation: results, or values that a task yields."""

    def __init__(self, kind: Any, format: Format) -> None:
        self._encode: Callable[[Any], bytes] = format.encode
        self._decode = format.decoder(kind)
        self._comparison = Comparison(kind, format)
        self._plain = self._comparison.plain
        self._kind = kind

    def encode(self, value: Any) -> bytes:
        """Raises TypeError and ValueError for a value that cannot be carried."""
        encoded = self._encode(value)
        if type(value) not in self._plain or (type(value) is float and value - value != 0.0):
            try:
                arrived = self._decode(encoded)
            except msgspec.DecodeError as error:
                raise ValueError(f"it does not have the annotated type: {error}") from None
            problem = self._comparison.problem(value, arrived)
            if problem:
                raise ValueError(problem)
        return encoded


def _plain_types(kind: Any, format: str) -> frozenset[type]:
    """Return the types whose values arrive as they are, by the annotation alone. Others are compared."""
    if kind in OPEN:
        return frozenset(SCALARS if format == "json" else (*SCALARS, bytes))
    if kind is None:
        return frozenset((NoneType,))
    if kind in (*SCALARS, bytes):
        return frozenset((kind,))
    if get_origin(kind) in (Union, UnionType):
        return frozenset().union(*(_plain_types(each, format) for each in get_args(kind)))
    return frozenset()


def _types_in(found: Any, seen: set[int]) -> Iterator[Type]:
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, tuple):
        for each in found:
            yield from _types_in(each, seen)
    elif isinstance(found, Type | msgspec.inspect.Field):
        if isinstance(found, Type):
            yield found
        for name in found.__struct_fields__:
            yield from _types_in(getattr(found, name), seen)


def _is_equal(sent: Any, arrived: Any) -> bool:
    if isinstance(sent, datetime | time) or isinstance(arrived, datetime | time):
        return _is_same_time(sent, arrived)
    if isinstance(sent, BYTES) and isinstance(arrived, BYTES):
        return bytes(sent) == bytes(arrived)
    if isinstance(sent, float) and isinstance(arrived, float) and sent != sent:
        return arrived != arrived
    if isinstance(sent, Decimal) and isinstance(arrived, Decimal):
        return str(sent) == str(arrived)
    try:
        return bool(sent == arrived)
    except Exception:
        return False


def _is_same_time(sent: Any, arrived: Any) -> bool:
    """Compare instants: two that are equal are never equal to Python if one is in the hour that a clock repeats."""
    if isinstance(sent, datetime) and isinstance(arrived, datetime):
        if sent.tzinfo is None or arrived.tzinfo is None:
            return sent.tzinfo is arrived.tzinfo and sent == arrived
        try:
            return sent.astimezone(UTC) == arrived.astimezone(UTC)
        except OverflowError:  # in the first or the last year that there is
            return sent.utcoffset() == arrived.utcoffset() and sent.replace(tzinfo=None) == arrived.replace(tzinfo=None)
    if isinstance(sent, time) and isinstance(arrived, time):
        return (sent.tzinfo is None) is (arrived.tzinfo is None) and sent == arrived
    return False


def _is_same_set(sent: Any, arrived: Any, *, is_open: bool = False) -> bool:
    if not isinstance(arrived, SETS if is_open else (*SETS, *LISTS)) or len(sent) != len(arrived):
        return False
    try:
        return set(sent) == set(arrived)
    except TypeError:  # no member of a set
        return False


def _is_part(sent: Any, arrived: Any) -> bool:
    """Tell if all of a dict is in the object that it stands for, whose other fields have their defaults."""
    if isinstance(sent, dict) and isinstance(arrived, dict):
        return all(key in arrived and _is_part(value, arrived[key]) for key, value in sent.items())
    if isinstance(sent, LISTS) and isinstance(arrived, LISTS):
        return len(sent) == len(arrived) and all(map(_is_part, sent, arrived))
    return _is_equal(sent, arrived)


def _built(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=to_builtin)


def _fields(value: Any) -> tuple[str, ...]:
    """Return the names of an object's fields, if it has some."""
    if is_dataclass(value):
        return tuple(each.name for each in fields(value))
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    known: Any = getattr(type(value), "model_fields", None)
    return tuple(known) if isinstance(known, dict) else ()


def _named(value: Any) -> str:
    return "None" if value is None else f"the {type(value).__name__} {_short(value)}"


def _short(value: Any) -> str:
    try:
        return _REPR.repr(value)
    except Exception:
        return "(no text)"
