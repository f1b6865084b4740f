"""Subclasses of JobFailed that can also be caught as the builtin exception that was raised in the worker."""

from __future__ import annotations

import builtins
from typing import Any

from dragoman.sdk.errors import DragomanError, JobFailed

_NOT_MAPPED = (Exception, StopIteration, StopAsyncIteration)  # not mapped; the last two would end a generator
_kinds: dict[str, type[JobFailed]] = {}  # by name of the builtin exception; there are about sixty


def as_builtin(error: DragomanError) -> DragomanError:
    """Return the same failure. If its type is a builtin exception, such as KeyError, it is an instance of it, too."""
    if type(error) is not JobFailed:
        return error
    kind = _kinds.get(error.remote_type)
    if kind is None:
        found = getattr(builtins, error.remote_type, None)
        if not isinstance(found, type) or not issubclass(found, Exception):
            return error
        kind = _kinds[error.remote_type] = _kind_of(found)
    made = kind(*_arguments(error))
    made.__cause__, made.__context__ = error.__cause__, error.__context__
    return made


def _kind_of(builtin: type[Exception]) -> type[JobFailed]:
    """Return a class derived from both. A builtin such as UnicodeDecodeError, whose constructor does not take one
    string, is replaced by its base class."""
    for each in builtin.__mro__:
        if each in _NOT_MAPPED:
            break
        try:
            kind: type[JobFailed] = type("JobFailed", (JobFailed, each), {"__str__": _message, "__reduce__": _reduced})
            kind("a message")
        except TypeError:
            continue
        return kind
    return JobFailed


def _message(self: JobFailed) -> str:
    """Return the message; `KeyError.__str__` would put it into quotes."""
    return str(self.args[0])


def _reduced(self: JobFailed) -> tuple[Any, tuple[str, str, str, str]]:
    return _restored, _arguments(self)


def _restored(*arguments: str) -> DragomanError:
    return as_builtin(JobFailed(*arguments))


def _arguments(error: JobFailed) -> tuple[str, str, str, str]:
    return str(error), error.remote_type, error.remote_message, error.remote_traceback
