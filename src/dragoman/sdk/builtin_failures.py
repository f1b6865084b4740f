"""Failures that can be caught as the builtin exception that was raised in the worker, and as JobFailed."""

from __future__ import annotations

import builtins
from typing import Any

from dragoman.sdk.errors import DragomanError, JobFailed

_LEFT_ALONE = (Exception, StopIteration, StopAsyncIteration)  # the latter two mean something else to a generator
_kinds: dict[str, type[JobFailed]] = {}  # by the builtin's name; there are about sixty


def as_builtin(error: DragomanError) -> DragomanError:
    """The same failure. If its type is a builtin exception, such as KeyError, it is one of these, too."""
    if type(error) is not JobFailed:
        return error
    kind = _kinds.get(error.remote_type)
    if kind is None:
        found = getattr(builtins, error.remote_type, None)
        if not isinstance(found, type) or not issubclass(found, Exception):
            return error
        kind = _kinds[error.remote_type] = _kind_of(found)
    made = kind(*_said_by(error))
    made.__cause__, made.__context__ = error.__cause__, error.__context__
    return made


def _kind_of(builtin: type[Exception]) -> type[JobFailed]:
    """A class of both. Some builtins, such as UnicodeDecodeError, cannot be made of a sentence; their parents can."""
    for each in builtin.__mro__:
        if each in _LEFT_ALONE:
            break
        try:
            kind: type[JobFailed] = type("JobFailed", (JobFailed, each), {"__str__": _told, "__reduce__": _reduced})
            kind("a sentence")
        except TypeError:
            continue
        return kind
    return JobFailed


def _told(self: JobFailed) -> str:
    """KeyError's own would put it into quotes."""
    return str(self.args[0])


def _reduced(self: JobFailed) -> tuple[Any, tuple[str, str, str, str]]:
    return _restored, _said_by(self)


def _restored(*said: str) -> DragomanError:
    return as_builtin(JobFailed(*said))


def _said_by(error: JobFailed) -> tuple[str, str, str, str]:
    return str(error), error.remote_type, error.remote_message, error.remote_traceback
