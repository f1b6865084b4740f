"""Options and arguments from the fields of a request, with their types, limits, defaults and help."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click
import msgspec
from msgspec.structs import fields

from dragoman.cli.moments import ALLOWED, moment_of
from dragoman.cli.seconds import NO_LIMIT
from dragoman.operations.request_fields import RequestField, request_fields
from dragoman.operations.schemas import OperationRequest
from dragoman.operations.validation import explain

Command = TypeVar("Command", bound=Callable[..., Any])


class FieldValue(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click only
    """Reads a value as the request's type declares it; of a list, one entry.

    The word `none` is NO_LIMIT where a field has a default and may be null.
    """

    def __init__(self, request: type[OperationRequest], field: RequestField) -> None:
        self.field = field
        self.name = field.name
        (self._type,) = (each.type for each in fields(request) if each.name == field.name)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        field = self.field
        if value in ("none", NO_LIMIT) and field.is_nullable and field.default is not None:
            return NO_LIMIT
        if field.kind is datetime and isinstance(value, str):
            try:
                return moment_of(value)
            except ValueError as error:
                self.fail(f"{value!r}: {error}", param, ctx)
        try:
            read = msgspec.convert([value] if field.is_list else value, self._type, strict=False)
        except msgspec.ValidationError as error:
            self.fail(f"{value!r}: {explain(error, self._type)}{self._allowed}", param, ctx)
        if read is None:
            self.fail(f"{value!r}: leave the option out instead", param, ctx)
        return read[0] if field.is_list else read

    @property
    def _allowed(self) -> str:
        """`; allowed: more than 0, at most 60, or none`. Empty if the field has no limits."""
        field = self.field
        none = ", or none" if field.is_nullable and field.default is not None else ""
        return f"; allowed: {field.limits}{none}" if field.limits else ""


def request_options(request: type[OperationRequest], *names: str) -> Callable[[Command], Command]:
    """Options for these fields. A value is None, or empty for a list, where the option is left out."""
    found = {each.name: each for each in request_fields(request)}

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            command = click.option(_declaration(found[name]), name, **_facts(request, found[name]))(command)
        return command

    return decorate


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The fields that were given, with None for NO_LIMIT."""
    return {name: None if each is NO_LIMIT else each for name, each in options.items() if each not in (None, ())}


def _declaration(field: RequestField) -> str:
    name = field.name.replace("_", "-")
    return f"--{name}/--no-{name}" if field.kind is bool and field.is_nullable else f"--{name}"


def _facts(request: type[OperationRequest], field: RequestField) -> dict[str, Any]:
    if field.kind is bool:
        return {"is_flag": True, "default": None, "help": field.description}
    facts: dict[str, Any] = {"help": _help(field), "multiple": field.is_list}
    if field.choices:
        return {**facts, "type": click.Choice(field.choices), "help": _help(field, with_limits=False)}
    return {**facts, "type": FieldValue(request, field), "metavar": _metavar(field)}


def _help(field: RequestField, with_limits: bool = True) -> str:
    default = f"default: {field.default_text}" if field.default_text else ""
    limits = ALLOWED if field.kind is datetime else field.limits if with_limits else ""
    facts = "; ".join(filter(None, (limits, default)))
    return field.description.replace("`null`", "`none`") + (f"  [{facts}]" if facts else "")


def _metavar(field: RequestField) -> str:
    if field.most is not None and field.most < 10:
        return f"{field.least:g}..{field.most:g}"
    metavar = {int: "N", float: "S", datetime: "TIME"}.get(field.kind, field.name.upper())
    return "|".join((metavar, *field.words))
