"""Annotations of a task's function: reads them, and checks that values of these types can be decoded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_type_hints

import msgspec
from msgspec.inspect import CustomType, Type, type_info

from dragoman.tasks.formats import is_decodable


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations by parameter. Raises TypeError."""
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(inspect.unwrap(target), include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the annotations of {_name(function)} cannot be read: {error}; import the name outside of TYPE_CHECKING"
        ) from None


def check_hints(name: str, parameters: Mapping[str, Any]) -> None:
    """Raise TypeError for a parameter of a type that no format can decode."""
    for parameter, kind in parameters.items():
        _check(f"parameter {parameter!r} of {name}", kind)


def check_result_hint(name: str, kind: Any) -> None:
    """Raise TypeError for a result of a type that no format can decode. That of a generator is the type of a value."""
    _check(f"the result of {name}", kind)


def _check(what: str, kind: Any) -> None:
    try:
        found = type_info(kind)
    except (TypeError, ValueError, NameError) as error:
        raise TypeError(f"{what} cannot be decoded: {error}") from None
    for each in _custom_types(found, set()):
        if not is_decodable(each):
            raise TypeError(
                f"{what} has the type {each.__module__}.{each.__qualname__}, which cannot be decoded; use a dataclass, "
                "a msgspec.Struct, a pydantic model, or builtin types such as list and dict"
            )


def _custom_types(found: Any, seen: set[int]) -> Iterator[type]:
    """Yield the types that msgspec leaves to us, in a type and everything that it contains."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, CustomType):
        yield found.cls
    elif isinstance(found, tuple):
        for each in found:
            yield from _custom_types(each, seen)
    elif isinstance(found, Type | msgspec.inspect.Field):
        for name in found.__struct_fields__:
            yield from _custom_types(getattr(found, name), seen)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
