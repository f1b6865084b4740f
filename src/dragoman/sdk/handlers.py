"""One service: a function, what its payloads are, and what becomes of a payload that is given to it."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from dragoman.dialects.sides import Failure
from dragoman.sdk.codecs import Codec, Payload, codec
from dragoman.sdk.context import Context
from dragoman.sdk.signatures import context_parameter

MAIN = ("__main__", "__mp_main__")


class HandlerFailed(Exception):
    """The handler did not come to a result."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Handler:
    name: str
    function: Callable[..., Any]
    codec: Codec
    context_name: str  # of the parameter that gets the context; empty: none does
    is_async: bool

    @property
    def wants_context(self) -> bool:
        return bool(self.context_name)

    def perform(self, payload: Payload, context: Context | None) -> Payload:
        """The result. Raises CouldNot."""
        argument = self._decode(payload)
        try:
            if self.context_name:
                result = self.function(argument, **{self.context_name: context})
            else:
                result = self.function(argument)
        except BaseException as error:  # CancelledError, say: it may cost a job, but never the thread that did it
            raise HandlerFailed(failure_of(error)) from None
        return self._encode(result)

    async def perform_async(self, payload: Payload, context: Context | None) -> Payload:
        """The same, for a handler that is a coroutine function."""
        argument = self._decode(payload)
        try:
            if self.context_name:
                result = await self.function(argument, **{self.context_name: context})
            else:
                result = await self.function(argument)
        except (asyncio.CancelledError, GeneratorExit):
            raise  # not the handler's, but its task's
        except BaseException as error:
            raise HandlerFailed(failure_of(error)) from None
        return self._encode(result)

    def _decode(self, payload: Payload) -> Any:
        try:
            return self.codec.decode(payload)
        except Exception as error:
            told = f"the payload cannot be read as {self.codec.name}, which {self.name!r} takes: {_message(error)}"
            raise HandlerFailed(Failure("ValueError", told)) from None

    def _encode(self, result: Any) -> Payload:
        try:
            return self.codec.encode(result)
        except Exception as error:
            kind = type(result).__name__
            told = f"the handler's result, a {kind}, cannot be written as {self.codec.name}: {_message(error)}"
            raise HandlerFailed(Failure("TypeError", told)) from None


def describe(name: str, function: Callable[..., Any], codec_name: str = "bytes") -> Handler:
    """A service of this function. Raises TypeError if it cannot be called with a payload, ValueError for a codec that
    nobody knows."""
    if not callable(function):
        raise TypeError(f"a handler is a function, not a {type(function).__name__}")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    return Handler(name, function, codec(codec_name), context_parameter(function), is_async)


def failure_of(error: BaseException) -> Failure:
    """A handler's exception as its caller will see it."""
    kind = type(error)
    hidden = ("builtins", *MAIN)
    name = kind.__qualname__ if kind.__module__ in hidden else f"{kind.__module__}.{kind.__qualname__}"
    return Failure(name, _message(error), _traceback(error))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception whose own __str__ fails is still a failure of the handler's
        return "(its message cannot be had)"


def _traceback(error: BaseException) -> str:
    """From the handler's own code on: what is above it is ours."""
    behind: TracebackType | None = error.__traceback__
    if behind is not None and behind.tb_next is not None:
        behind = behind.tb_next
    return "".join(traceback.format_exception(type(error), error, behind)).rstrip("\n")
