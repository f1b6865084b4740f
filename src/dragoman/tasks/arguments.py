"""Arguments of a task: bound to the function's parameters, encoded as a map from names to values, and validated.

The map has the arguments that the caller gave; defaults are those of the worker. `*args` is a list under its name,
`**kwargs` a map under its name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, get_type_hints

import msgspec

from dragoman.sdk.errors import WrongArguments
from dragoman.sdk.signatures import is_context
from dragoman.tasks.formats import Format, Payload
from dragoman.tasks.streams import is_generator

BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
PATH = re.compile(r" - at `\$(?:\.(\w+))?([^`]*)`$")


class TaskSignature:
    """The parameters and the result of a function. `wants_context`: its first parameter is a `Context`."""

    def __init__(self, name: str, function: Callable[..., Any], format: Format) -> None:
        """Raises TypeError for a function that cannot be a task."""
        self.name = name
        hints = _type_hints(function)
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        self.wants_context = bool(parameters) and is_context(hints.get(parameters[0].name))
        if self.wants_context:
            del parameters[0]
        for each in parameters:
            if is_context(hints.get(each.name)):
                raise TypeError(f"parameter {each.name!r} of {name} is a Context; the Context must be the first one")
        self._signature = signature.replace(parameters=parameters)
        self._parameters = parameters
        self._is_plain = all(each.kind in (*BY_POSITION, Parameter.KEYWORD_ONLY) for each in parameters)
        self._positions = tuple(each.name for each in parameters if each.kind in BY_POSITION)
        self._required = frozenset(each.name for each in parameters if _is_required(each))
        self._keywords = frozenset(each.name for each in parameters if each.kind is not Parameter.POSITIONAL_ONLY)
        self._by_position_only = tuple(each.name for each in parameters if each.kind is Parameter.POSITIONAL_ONLY)
        self._encode = format.encode
        self._decode = format.decoder(_struct(name, parameters, hints))
        self.encode_result = format.encode
        self.returned = hints.get("return", Any)  # the annotation of the result
        if not is_generator(function):
            self.decode_result = format.decoder(self.returned)

    # ---------------------------------------------------------------- caller

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Encode the arguments of a call. Raises TypeError as a call of the function would."""
        return self._encode(self.bind(args, kwargs))

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, without defaults. Raises TypeError."""
        if self._is_plain and len(args) <= len(self._positions) and kwargs.keys() <= self._keywords:
            bound = dict(zip(self._positions, args, strict=False))
            if not kwargs or not bound.keys() & kwargs.keys():
                bound.update(kwargs)
                if bound.keys() >= self._required:
                    return bound
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None

    # ---------------------------------------------------------------- worker

    def decode(self, payload: Payload) -> tuple[list[Any], dict[str, Any]]:
        """Decode and validate arguments. Returns them by position and by name. Raises WrongArguments."""
        try:
            found = self._decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WrongArguments(self._problem(error)) from None
        given = {each: getattr(found, each) for each in found.__struct_fields__}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        is_gap = False  # a parameter before this one is left to its default
        for each in self._parameters:
            value = given[each.name]
            if value is msgspec.UNSET:
                is_gap = True
            elif each.kind is Parameter.VAR_POSITIONAL:
                if is_gap and value:
                    raise WrongArguments(f"{self.name}: {each.name!r} is given, but not every parameter before it")
                args += value
            elif each.kind is Parameter.VAR_KEYWORD:
                kwargs |= value
            elif each.kind is Parameter.KEYWORD_ONLY or is_gap:
                if each.kind is Parameter.POSITIONAL_ONLY:
                    raise WrongArguments(f"{self.name}: {each.name!r} is given, but not every parameter before it")
                kwargs[each.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _problem(self, error: Exception) -> str:
        """Return the error of the decoder as a sentence that names the parameter."""
        text = str(error)
        found = PATH.search(text)
        what = text[: found.start()] if found is not None else text
        missing = re.fullmatch(r"Object missing required field `(\w+)`", what)
        unknown = re.fullmatch(r"Object contains unknown field `(.+)`", what)
        if found is None or not found[1]:
            if missing is not None:
                return f"argument {missing[1]!r} of {self.name} is missing"
            if unknown is not None:
                names = ", ".join(each.name for each in self._parameters) or "none"
                return f"{self.name} has no parameter {unknown[1]!r}; its parameters: {names}"
        if found is None or not found[1]:
            return f"the arguments of {self.name} cannot be decoded: {what}; expected an object of names and values"
        place = f", at {found[1]}{found[2]}" if found[2] else ""
        return f"argument {found[1]!r} of {self.name}: {what[:1].lower()}{what[1:]}{place}"


def _is_required(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty and parameter.kind in (*BY_POSITION, Parameter.KEYWORD_ONLY)


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(inspect.unwrap(target), include_extras=True)
    except NameError as error:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"the annotations of {name} cannot be read: {error}; import the name outside of TYPE_CHECKING"
        ) from None


def _struct(name: str, parameters: list[Parameter], hints: dict[str, Any]) -> type[msgspec.Struct]:
    """Return a type whose fields are the parameters; those with defaults may be absent."""
    fields: list[Any] = []
    for each in parameters:
        kind = hints.get(each.name, Any)
        if each.kind is Parameter.VAR_POSITIONAL:
            fields.append((each.name, list.__class_getitem__(kind), msgspec.field(default_factory=list)))
        elif each.kind is Parameter.VAR_KEYWORD:
            fields.append((each.name, dict.__class_getitem__((str, kind)), msgspec.field(default_factory=dict)))
        elif each.default is Parameter.empty:
            fields.append((each.name, kind))
        else:
            fields.append((each.name, kind, msgspec.UNSET))
    try:
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the parameters of {name} cannot be decoded: {error}") from None
