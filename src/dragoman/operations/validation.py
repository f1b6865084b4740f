"""Rewrites msgspec's validation errors as messages that name the field and the allowed values."""

from __future__ import annotations

import json
import re
from ast import literal_eval
from contextlib import suppress
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from dragoman.core.model import Payload
from dragoman.operations.schemas import DAY, ID, NAME

T = TypeVar("T")

EXPECTED = re.compile(r"Expected `(\w+)[^`]*`(?:, got `(\w+)[^`]*`| matching regex (.+)| (of length )?([<>]=?) (\S+)|)")
FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
PLACE = re.compile(r" - at `\$\.?([^`]*)`$")

THINGS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
PATTERNS = {
    ID: "must be 32 lower-case hex digits",
    NAME: "must not have control characters or others that cannot be seen",
}
BOUNDS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
MOMENT = "must be a time with its zone, such as 2030-01-01T08:00:00+01:00"


def decode(decoder: msgspec.json.Decoder[T], body: Payload) -> T:
    """Decode JSON of a request. Raises DecodeError, UnicodeDecodeError or RecursionError.

    An object that has a key twice is an error, too: readers differ in which of the two they take, and msgspec takes the
    last without a word.
    """
    if body.count(b":") > 1 and _may_repeat(body):
        with suppress(json.JSONDecodeError, UnicodeDecodeError):  # it is not JSON: the decoder says so
            json.loads(body.decode(), object_pairs_hook=_unrepeated)
    return decoder.decode(body)


def _may_repeat(body: Payload) -> bool:
    """Tell quickly if an object may have a key twice. False is certain: if every colon follows a quote and there are no
    escapes, each key is between such a quote and the one before it."""
    if b"\\" in body or body.count(b":") != body.count(b'":'):
        return True
    keys = [bytes(each.rpartition(b'"')[2]) for each in body.split(b'":')[:-1]]
    return len(set(keys)) < len(keys)


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise msgspec.ValidationError(f"the key {repeated[:64]!r} is repeated; an object has each key once")
    return found


def explain(error: Exception, kind: Any) -> str:
    """Return the message for an error that msgspec raised while decoding a `kind`: a request, or another type."""
    if isinstance(error, RecursionError):
        return "the request is nested too deeply"
    text = str(error)
    place = PLACE.search(text)
    if place is None:
        return _explain(text, kind)
    return f"{place[1]}: {_explain(text[: place.start()], _kind_at(place[1], kind))}"


def duration(seconds: float) -> str:
    """`90 s`, `30 days`."""
    days = f"{seconds / DAY:g}"
    return f"{days} day{'' if days == '1' else 's'}" if seconds >= DAY else f"{seconds:g} s"


def _explain(text: str, kind: Any) -> str:
    if text.startswith("Invalid enum value"):
        return f"must be one of {', '.join(_allowed(kind))}"
    if "RFC3339" in text or text.startswith("Expected `datetime"):
        return MOMENT
    if found := FIELD.fullmatch(text):
        return f"{found[2]} is missing" if found[1] == "missing required" else _unknown(found[2], kind)
    if found := EXPECTED.fullmatch(text):
        thing, got, pattern, length, sign, bound = found.groups()
        if pattern is not None:
            return PATTERNS.get(literal_eval(pattern), f"must match {pattern}")
        if length is not None:
            return _length(thing, sign, bound)
        if sign is not None:
            return f"must be {_bound(sign, float(bound))}"
        is_plain = got is None or thing == "bool" or (thing, got) == ("int", "float")
        return f"must be {THINGS.get(thing, thing)}" + ("" if is_plain else f", not {THINGS.get(got, got)}")
    return text


def _length(thing: str, sign: str, bound: str) -> str:
    if (sign, bound) == (">=", "1"):
        return "must not be empty"
    return f"must have {BOUNDS[sign]} {bound} {'entries' if thing == 'array' else 'characters'}"


def _bound(sign: str, bound: float) -> str:
    number = f"{bound:.0f}" if bound.is_integer() else f"{bound:g}"
    days = f", {duration(bound)}" if bound >= DAY and bound % DAY == 0 else ""
    return f"{BOUNDS[sign]} {number}{days}"


def _unknown(name: str, kind: Any) -> str:
    known = [each.encode_name for each in fields(kind)] if _is_struct(kind) else []
    return f"unknown field {name!r}; " + (f"allowed are {', '.join(known)}" if known else "no fields are allowed")


def _kind_at(place: str, kind: Any) -> Any:
    """Return the type of the field that contains a place such as `states[0]`."""
    name = re.match(r"\w*", place)[0]  # type: ignore[index]
    return next((each.type for each in fields(kind) if each.encode_name == name), kind) if _is_struct(kind) else kind


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _allowed(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    return [value for inner in get_args(kind) for value in _allowed(inner)]
