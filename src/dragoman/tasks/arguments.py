"""Arguments of a task: bound to the function's parameters, encoded as a map from names to values, and validated.

The map has the arguments that the caller gave; defaults are those of the worker. `*args` is a list under its name,
`**kwargs` a map under its name. Keys that begin with `@` are no parameters: they carry the retry rules of one job.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter
from typing import Any, Final, Self

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from dragoman.core.results_payload import PREFIX, unpack_results
from dragoman.sdk.errors import WrongArguments
from dragoman.sdk.signatures import is_context
from dragoman.tasks.formats import Format, Payload
from dragoman.tasks.function_hints import check_hints, check_result_hint, type_hints
from dragoman.tasks.retries import NamedRules
from dragoman.tasks.round_trip import Comparison, ResultEncoder
from dragoman.tasks.streams import is_generator

BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
PATH = re.compile(r" - at `\$(?:\.(@?\w+))?([^`]*)`$")
RETRY_ON: Final = "@retry_on"  # no parameter can have such a name
NEVER_RETRY_ON: Final = "@never_retry_on"
MOST_NAMED: Final = 10  # unknown parameters in a sentence
MOST_UNKNOWN: Final = (
    256  # unknown parameters, and characters of each, of arguments that may be those of a newer version
)


# Arguments of a job by position and by name, and the rules of its caller; None: those of the task. It is a plain tuple,
# because one is made for each job.
Arguments = tuple[Sequence[Any], dict[str, Any], NamedRules | None]


class TaskSignature:
    """The parameters and the result of a function. `wants_context`: its first parameter is a `Context`."""

    def __init__(self, name: str, function: Callable[..., Any], format: Format) -> None:
        """Raises TypeError for a function that cannot be a task."""
        self.name = name
        hints = type_hints(function)
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        self.wants_context = bool(parameters) and is_context(hints.get(parameters[0].name))
        if self.wants_context:
            del parameters[0]
        for each in parameters:
            if is_context(hints.get(each.name)):
                raise TypeError(f"parameter {each.name!r} of {name} is a Context; the Context must be the first one")
        check_hints(name, {each.name: hints[each.name] for each in parameters if each.name in hints})
        self._signature = signature.replace(parameters=parameters)
        self._parameters = parameters
        self._hints = hints
        self._format = format
        self.names = tuple(each.name for each in parameters)
        self._rules: dict[str, Any] = {}  # of the caller, for each job
        self._positions = tuple(each.name for each in parameters if each.kind in BY_POSITION)
        self._required = frozenset(each.name for each in parameters if _is_required(each))
        self._keywords = frozenset(each.name for each in parameters if each.kind is not Parameter.POSITIONAL_ONLY)
        self._decode_some: Callable[[Payload], Any] | None = None  # arguments of which some may be missing
        self._is_plain = all(each.kind in (*BY_POSITION, Parameter.KEYWORD_ONLY) for each in parameters)
        self._is_by_position = len(self._positions) == len(parameters)
        self._is_all_required = self._is_by_position and len(self._required) == len(parameters)
        self._encode = format.encode
        self._merge = format.merge
        self._decode = format.decoder(_struct(name, parameters, hints))
        self._comparisons = {each.name: Comparison(_sent_type(each, hints), format) for each in parameters}
        self._plain = {name: each.plain for name, each in self._comparisons.items()}
        self.returned = hints.get("return", Any)  # the annotation of the result
        if not is_generator(function):
            check_result_hint(name, self.returned)
            self.decode_result = format.decoder(self.returned)
            self.encode_result = ResultEncoder(self.returned, format).encode

    # ---------------------------------------------------------------- caller

    def with_rules(self, rules: NamedRules) -> Self:
        """Return this signature with retry rules that are sent with each job."""
        changed = copy.copy(self)
        changed._rules = {RETRY_ON: list(rules.on), NEVER_RETRY_ON: list(rules.never)}
        return changed

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Encode the arguments of a call. Raises TypeError as a call of the function would, and WrongArguments for
        arguments that would not arrive as they are."""
        bound = self.bind(args, kwargs)
        try:
            payload = self._encode({**bound, **self._rules} if self._rules else bound)
        except (ValueError, OverflowError, RecursionError) as error:
            raise WrongArguments(self._problem_of_encoding(error, bound)) from None
        plain = self._plain
        for name, value in bound.items():  # not in a method of its own, because this is done for each job
            kind = type(value)
            if kind not in plain[name] or (kind is float and value - value != 0.0):
                self._compare(bound, payload)
                break
        return payload

    def _compare(self, bound: dict[str, Any], payload: bytes) -> None:
        """Decode arguments as a worker does. Raises WrongArguments for those that would arrive changed."""
        if self._decode_some is None:
            self._decode_some = self._format.decoder(_struct(self.name, self._parameters, self._hints, is_partial=True))
        try:
            values = astuple(self._decode_some(payload))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WrongArguments(self._problem(error)) from None
        except Exception as error:
            raise WrongArguments(self._problem_of_a_type(error, payload)) from error
        for each, arrived in zip(self._parameters, values, strict=False):
            if each.name in bound:
                sent = bound[each.name]
                if each.kind is Parameter.VAR_POSITIONAL:
                    sent = list(sent)
                problem = self._comparisons[each.name].problem(sent, arrived)
                if problem:
                    raise WrongArguments(f"argument {each.name!r} of {self.name}: {problem}")

    def _problem_of_encoding(self, error: Exception, bound: dict[str, Any]) -> str:
        """Return the encoder's error as a sentence that names the parameter."""
        for name, value in bound.items():
            try:
                self._encode(value)
            except Exception as found:
                return f"argument {name!r} of {self.name} cannot be encoded as {self._format.name}: {found}"
        return f"the arguments of {self.name} cannot be encoded as {self._format.name}: {error}"

    def encode_each(self, values: Iterable[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[bytes]:
        """Encode the arguments of many calls: each value of the first parameter, and the same others. Raises TypeError
        as a call of the function would."""
        if not self._is_plain:
            return (self.encode((value, *args), kwargs) for value in values)
        return self._encode_each(values, self.bind((None, *args), kwargs))

    def _encode_each(self, values: Iterable[Any], bound: dict[str, Any]) -> Iterator[bytes]:
        first, encode = self._positions[0], self._encode
        plain = self._plain[first]
        sent = {**bound, **self._rules}
        is_compared = False  # the arguments besides the first
        for name, value in bound.items():
            if name != first and (type(value) not in self._plain[name] or type(value) is float):
                break
        else:
            is_compared = True
        for value in values:
            sent[first] = value
            try:
                payload = encode(sent)
            except (ValueError, OverflowError, RecursionError) as error:
                raise WrongArguments(self._problem_of_encoding(error, {**bound, first: value})) from None
            kind = type(value)
            if not is_compared or kind not in plain or (kind is float and value - value != 0.0):
                self._compare({**bound, first: value}, payload)
                is_compared = True
            yield payload

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, without defaults. Raises TypeError."""
        if not kwargs and self._is_by_position and len(args) == len(self._positions):
            return dict(zip(self._positions, args))  # noqa: B905 - the argument takes as long as the rest
        if self._is_plain and len(args) <= len(self._positions) and (not kwargs or kwargs.keys() <= self._keywords):
            bound = dict(zip(self._positions, args, strict=False))
            if not kwargs or not bound.keys() & kwargs.keys():
                bound.update(kwargs)
                if bound.keys() >= self._required:
                    return bound
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None

    def encode_rest(self, results: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """Encode the arguments behind those that are results of other jobs. Raises TypeError."""
        bound = self.bind((None,) * results + args, kwargs)
        for name in self._positions[:results]:
            del bound[name]
        try:
            payload = self._encode({**bound, **self._rules})
        except (ValueError, OverflowError, RecursionError) as error:
            raise WrongArguments(self._problem_of_encoding(error, bound)) from None
        self._compare(bound, payload)
        return payload

    def check_results(self, results: int) -> None:
        """Raise TypeError if the results of so many jobs cannot be arguments."""
        if results > len(self._positions):
            most = len(self._positions)
            raise TypeError(f"{self.name} takes {most} arguments by position, and {results} results are given")

    # ---------------------------------------------------------------- worker

    def decode(self, payload: Payload) -> Arguments:
        """Decode and validate arguments. Raises WrongArguments."""
        if payload.startswith(PREFIX):  # as is_packed does, without a call for each job
            payload = self._with_results(payload)
        try:
            *values, on, never = astuple(self._decode(payload))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._refusal(payload) or WrongArguments(self._problem(error)) from None
        except Exception as error:  # a type of the user raised it while it was made
            raise WrongArguments(self._problem_of_a_type(error, payload)) from error
        rules = None if on is UNSET and never is UNSET else NamedRules(_names(on), _names(never))
        if self._is_all_required:
            return values, {}, rules
        return *self._called_with(values), rules

    def _called_with(self, values: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments by position and by name, without those that were not given."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        is_gap = False  # a parameter before this one is left to its default
        for each, value in zip(self._parameters, values, strict=True):
            if value is UNSET:
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

    def _with_results(self, payload: Payload) -> Payload:
        """Return the arguments with results of other jobs as the first of them. Raises WrongArguments."""
        try:
            own, entries = unpack_results(payload)
        except ValueError as error:
            raise WrongArguments(f"the arguments of {self.name} cannot be decoded: {error}") from None
        names = self._positions[: len(entries)]
        if len(names) < len(entries):
            raise WrongArguments(f"{self.name} has {len(names)} parameters for {len(entries)} results of other jobs")
        merged = own or b""
        for name, entry in zip(names, entries, strict=True):
            try:
                merged = self._merge(merged, name, entry)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
                raise WrongArguments(f"argument {name!r} of {self.name}: a result cannot be decoded: {error}") from None
        return merged

    def _refusal(self, payload: Payload) -> WrongArguments | None:
        """Return the error for arguments with names that are no parameters; None if there are none."""
        try:
            given = self._format.decoder(dict[str, Any])(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        unknown = [each for each in given if each not in self.names and not each.startswith("@")]
        if not unknown:
            return None
        named = "parameter " if len(unknown) == 1 else "parameters "
        named += ", ".join(map(repr, unknown[:MOST_NAMED])) + (", …" if len(unknown) > MOST_NAMED else "")
        sentence = f"{self.name} has no {named}; its parameters: {', '.join(self.names) or 'none'}"
        is_large = len(unknown) > MOST_UNKNOWN or any(len(each) > MOST_UNKNOWN for each in unknown)
        return WrongArguments(sentence) if is_large else WrongArguments(sentence, unknown=unknown, known=self.names)

    def schema(self) -> dict[str, Any]:
        """Return the parameters as a JSON Schema object: their names, types, and defaults as far as JSON has them."""
        return parameters_schema(self._parameters, self._hints)

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
            return f"the arguments of {self.name} cannot be decoded: {what}; expected an object of names and values"
        place = f", at {found[1]}{found[2]}" if found[2] else ""
        return f"argument {found[1]!r} of {self.name}: {what[:1].lower()}{what[1:]}{place}"

    def _problem_of_a_type(self, error: Exception, payload: Payload) -> str:
        """Return a sentence about an exception of a user's type, such as of `__post_init__`. Each parameter is decoded
        alone to find the one whose type raises it."""
        what = f"{type(error).__name__}: {error}"
        for each in self._parameters:
            try:
                self._format.decoder(_struct(self.name, [each], self._hints, forbid_unknown_fields=False))(payload)
            except msgspec.DecodeError:
                continue
            except Exception:
                return f"argument {each.name!r} of {self.name}: {what}"
        return f"the arguments of {self.name} cannot be decoded: {what}"


def _is_required(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty and parameter.kind in (*BY_POSITION, Parameter.KEYWORD_ONLY)


def _sent_type(parameter: Parameter, hints: dict[str, Any]) -> Any:
    """Return the annotation of what is sent for a parameter."""
    kind = hints.get(parameter.name, Any)
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return list.__class_getitem__(kind)
    return dict.__class_getitem__((str, kind)) if parameter.kind is Parameter.VAR_KEYWORD else kind


def parameters_schema(parameters: Sequence[Parameter], hints: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as a JSON Schema object. A type that has no schema may have any value."""
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for each in parameters:
        kind = _sent_type(each, dict(hints))
        try:
            (schema,), components = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
        except Exception:  # of a type that only our own encoders know
            schema, components = {}, {}
        definitions |= components
        if each.default is not Parameter.empty:
            try:
                schema = {**schema, "default": json.loads(msgspec.json.encode(each.default))}
            except Exception:  # JSON does not have it
                schema = dict(schema)
        properties[each.name] = schema
    required = [each.name for each in parameters if _is_required(each)]
    found = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return found | ({"$defs": definitions} if definitions else {})


def _names(given: Any) -> tuple[str, ...]:
    return () if given is UNSET else tuple(given)


def _struct(
    name: str,
    parameters: list[Parameter],
    hints: dict[str, Any],
    forbid_unknown_fields: bool = True,
    is_partial: bool = False,
) -> type[msgspec.Struct]:
    """Return a type whose fields are the parameters, followed by two for the rules of a caller. Those with defaults may
    be absent; with `is_partial`, all may."""
    fields: list[Any] = []
    for each in parameters:
        kind = hints.get(each.name, Any)
        if each.kind is Parameter.VAR_POSITIONAL:
            fields.append((each.name, list.__class_getitem__(kind), msgspec.field(default_factory=list)))
        elif each.kind is Parameter.VAR_KEYWORD:
            fields.append((each.name, dict.__class_getitem__((str, kind)), msgspec.field(default_factory=dict)))
        elif each.default is Parameter.empty and not is_partial:
            fields.append((each.name, kind))
        else:
            fields.append((each.name, kind, UNSET))
    rules = {}
    for key in (RETRY_ON, NEVER_RETRY_ON):
        field = key.replace("@", "_")
        while any(field == each.name for each in parameters):
            field += "_"
        rules[field] = key
        fields.append((field, list[str], UNSET))
    try:
        return msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=forbid_unknown_fields, rename=rules
        )
    except (TypeError, ValueError) as error:
        raise TypeError(f"the parameters of {name} cannot be decoded: {error}") from None
