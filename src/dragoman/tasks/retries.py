"""Rules of a task, or of one job: exceptions after which it is retried, or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final, Protocol

from dragoman.sdk.errors import PermanentFailure, Retry
from dragoman.sdk.handlers import exception_name

ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...]


class Rules(Protocol):
    """Decides about an exception of a handler."""

    def is_permanent(self, error: BaseException) -> bool: ...


@dataclass(frozen=True, slots=True)
class RetryRules:
    """Rules of a task. `on`: only these exceptions are followed by a retry; empty: all. `never`: none of these is."""

    on: tuple[type[BaseException], ...] = ()
    never: tuple[type[BaseException], ...] = ()

    def is_permanent(self, error: BaseException) -> bool:
        return isinstance(error, self.never) or (bool(self.on) and not isinstance(error, self.on))

    def names(self) -> NamedRules:
        """Return these rules as they are sent with a job."""
        return NamedRules(tuple(map(exception_name, self.on)), tuple(map(exception_name, self.never)))


@dataclass(frozen=True, slots=True)
class NamedRules:
    """Rules that a caller sends with a job, by the names of exceptions. A subclass counts as its base classes."""

    on: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def is_permanent(self, error: BaseException) -> bool:
        names = {exception_name(each) for each in type(error).__mro__ if issubclass(each, BaseException)}
        return not names.isdisjoint(self.never) or (bool(self.on) and names.isdisjoint(self.on))


def call_with_rules(rules: Rules, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the function. An exception that is not followed by a retry is marked as permanent; its class, its cause and
    its traceback stay as they are. A `Retry` is an explicit decision, which no rule changes."""
    try:
        result = function(*args, **kwargs)
    except BaseException as error:
        _mark(rules, error)
        raise
    return _awaited(rules, result) if isawaitable(result) else result


async def _awaited(rules: Rules, result: Any) -> Any:
    try:
        return await result
    except BaseException as error:
        _mark(rules, error)
        raise


def _mark(rules: Rules, error: BaseException) -> None:
    if not isinstance(error, Retry | PermanentFailure) and rules.is_permanent(error):
        error.__dragoman_permanent__ = True  # type: ignore[attr-defined]


def rules_of(retry_on: ExceptionTypes, never_retry_on: ExceptionTypes) -> RetryRules:
    """Make rules of one exception type or several. Raises TypeError."""
    if retry_on == () == never_retry_on:
        return NO_RULES
    return RetryRules(_types("retry_on", retry_on), _types("never_retry_on", never_retry_on))


def _types(name: str, given: ExceptionTypes) -> tuple[type[BaseException], ...]:
    found: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    for each in found:
        if not isinstance(each, type) or not issubclass(each, BaseException):
            raise TypeError(f"{name}={each!r}: must be an exception type, or a tuple of them")
    return found


NO_RULES: Final = RetryRules()
