"""Rules of a task: exceptions after which its jobs are retried, or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final

from dragoman.sdk.errors import PermanentFailure, Retry

ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class RetryRules:
    """`on`: only these exceptions are followed by a retry; empty: all. `never`: none of these is."""

    on: tuple[type[BaseException], ...] = ()
    never: tuple[type[BaseException], ...] = ()

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the function. An exception that is not followed by a retry is marked as permanent."""
        if not self.on and not self.never:
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            raise self._marked(error) from None
        return self._awaited(result) if isawaitable(result) else result

    async def _awaited(self, result: Any) -> Any:
        try:
            return await result
        except Exception as error:
            raise self._marked(error) from None

    def _marked(self, error: Exception) -> Exception:
        """Mark an exception that ends the job: its class stays as it is for the caller."""
        is_retried = isinstance(error, self.on) if self.on else True
        if isinstance(error, self.never) or not (is_retried or isinstance(error, Retry)):
            return mark_permanent(error)
        return error


def mark_permanent(error: Exception) -> Exception:
    if not isinstance(error, PermanentFailure):
        error.__dragoman_permanent__ = True  # type: ignore[attr-defined]
    return error


def rules_of(retry_on: ExceptionTypes, never_retry_on: ExceptionTypes) -> RetryRules:
    """Make rules of one exception type or several. Raises TypeError."""
    return RetryRules(_types("retry_on", retry_on), _types("never_retry_on", never_retry_on))


def _types(name: str, given: ExceptionTypes) -> tuple[type[BaseException], ...]:
    found: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    for each in found:
        if not isinstance(each, type) or not issubclass(each, BaseException):
            raise TypeError(f"{name}={each!r}: must be an exception type, or a tuple of them")
    return found


NO_RULES: Final = RetryRules()
