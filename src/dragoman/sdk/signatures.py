"""Finds the handler parameter that receives the job's context: the one annotated `Context`."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from dragoman.sdk.context import Context


def context_parameter(function: Callable[..., Any]) -> str:
    """Return the name of the parameter annotated `Context`, or an empty string. Raises TypeError for a function that
    cannot be called with a payload and, by that name, a context."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # some functions written in C have no signature
        return ""
    name = getattr(function, "__qualname__", repr(function))
    if not parameters or parameters[0].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        raise TypeError(f"{name} has no parameter for the payload; a handler is called as {name}(payload)")
    names = _names_of(function)
    contexts = [each for each in parameters if is_context(each.annotation, names)]
    if parameters[0] in contexts:
        raise TypeError(f"the first parameter of {name} is a Context; the first parameter must be the payload")
    if len(contexts) > 1 or any(each.kind is each.POSITIONAL_ONLY or "VAR" in each.kind.name for each in contexts):
        raise TypeError(f"{name} may have only one Context parameter, and it must accept a keyword argument")
    for each in parameters[1:]:
        if each.default is each.empty and "VAR" not in each.kind.name and each not in contexts:
            raise TypeError(
                f"{name} has a parameter {each.name!r} without a value; annotate it as dragoman.Context to get the "
                "job's context, or give it a default"
            )
    return contexts[0].name if contexts else ""


def _names_of(function: Any) -> dict[str, Any]:
    """Return the global names that annotations of this function may use."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        function = inspect.unwrap(type(function).__call__)
    found: dict[str, Any] = getattr(getattr(function, "__func__", function), "__globals__", {})
    return found


def is_context(annotation: Any, names: dict[str, Any] | None = None) -> bool:
    """Return whether an annotation names the type `Context`. `names`: global names that it may use."""
    if isinstance(annotation, str):
        try:
            annotation = get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), names)["it"]
        except Exception:  # names that are imported for type checkers only
            identifiers = re.findall(r"[\w.]+", annotation)
            return any(name.rpartition(".")[2] == Context.__name__ for name in identifiers)
    if get_origin(annotation) is Annotated:
        return is_context(get_args(annotation)[0], names)
    if get_origin(annotation) in (Union, UnionType):
        return any(is_context(each, names) for each in get_args(annotation))
    return annotation is Context
