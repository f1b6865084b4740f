"""Handlers: calls a service's function with a decoded payload and encodes its result."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from types import TracebackType
from typing import Any

from dragoman.dialects.sides import Failure
from dragoman.sdk import hooks
from dragoman.sdk.codecs import Codec, Payload, codec
from dragoman.sdk.context import Context
from dragoman.sdk.errors import DragomanError, PermanentFailure, Retry, WrongArguments
from dragoman.sdk.parts import Parts, check_parts
from dragoman.sdk.service_limits import NOTHING_GIVEN, LimitValues
from dragoman.sdk.signatures import context_parameter

MAIN = ("__main__", "__mp_main__")
OURS = (
    __name__,
    "dragoman.tasks.task",
    "dragoman.tasks.stream_task",
    "dragoman.tasks.streams",
    "dragoman.tasks.retries",
)


class HandlerFailed(Exception):
    """The handler raised an exception, or its payload or result cannot be converted."""

    def __init__(self, failure: Failure, cause: BaseException) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Handler:
    """The function of one service, with its codec."""

    name: str
    function: Callable[..., Any]
    codec: Codec
    context_name: str  # parameter that receives the context; empty: none
    is_async: bool
    origin: object = None  # the object that a child process imports; None: the function
    parts: Parts = "join"  # effect for callers that cannot take parts of a result
    limits: LimitValues = NOTHING_GIVEN  # that the worker declares for the service

    @property
    def wants_context(self) -> bool:
        return bool(self.context_name) or bool(hooks.registered)

    def perform(self, payload: Payload, context: Context | None) -> Payload:
        """Call the function and return the encoded result. Raises HandlerFailed."""
        if context is None or not hooks.registered:
            return self._perform(payload, context)
        with hooks.around(context):
            return self._perform(payload, context)

    async def perform_async(self, payload: Payload, context: Context | None) -> Payload:
        """Await the function, for a handler that is a coroutine function. Raises HandlerFailed."""
        if context is None or not hooks.registered:
            return await self._perform_async(payload, context)
        with hooks.around(context):
            return await self._perform_async(payload, context)

    def _perform(self, payload: Payload, context: Context | None) -> Payload:
        argument = self._decode(payload)
        try:
            if self.context_name:
                result = self.function(argument, **{self.context_name: context})
            else:
                result = self.function(argument)
        except BaseException as error:  # such as CancelledError: it must not end the thread that runs the handler
            raise HandlerFailed(failure_of(error), error) from None
        return self._encode(result)

    async def _perform_async(self, payload: Payload, context: Context | None) -> Payload:
        argument = self._decode(payload)
        try:
            if self.context_name:
                result = await self.function(argument, **{self.context_name: context})
            else:
                result = await self.function(argument)
        except (asyncio.CancelledError, GeneratorExit):
            raise  # the task was cancelled, not the handler failed
        except BaseException as error:
            raise HandlerFailed(failure_of(error), error) from None
        return self._encode(result)

    def _decode(self, payload: Payload) -> Any:
        try:
            return self.codec.decode(payload)
        except WrongArguments as error:
            raise HandlerFailed(Failure("dragoman.WrongArguments", str(error), retry_in=inf), error) from None
        except Exception as error:
            message = f"the payload is not valid {self.codec.name}, the codec of {self.name!r}: {_message(error)}"
            raise HandlerFailed(Failure("ValueError", message), error) from None

    def _encode(self, result: Any) -> Payload:
        try:
            return self.codec.encode(result)
        except Exception as error:
            kind = type(result).__name__
            message = f"the handler's result, a {kind}, cannot be encoded as {self.codec.name}: {_message(error)}"
            raise HandlerFailed(Failure("TypeError", message), error) from None


def describe(
    name: str,
    function: Callable[..., Any],
    codec_name: str = "bytes",
    parts: Parts = "join",
    limits: LimitValues = NOTHING_GIVEN,
) -> Handler:
    """Return a handler for this function. Raises TypeError if it cannot be called with a payload, and ValueError if the
    codec is unknown. A task makes its own handler."""
    check_parts(parts)
    make: Callable[[str], Handler] | None = getattr(function, "task_handler", None)
    if make is not None:
        return make(name)
    if not callable(function):
        raise TypeError(f"a handler must be callable, not a {type(function).__name__}")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    return Handler(name, function, codec(codec_name), context_parameter(function), is_async, parts=parts, limits=limits)


def failure_of(error: BaseException) -> Failure:
    """Return a handler's exception as the failure that its caller receives."""
    return Failure(exception_name(type(error)), _message(error), _traceback(error), _retry_in(error))


def exception_name(kind: type[BaseException]) -> str:
    """Return the name of an exception on the wire: `ValueError`, `mypackage.Trouble`. Builtin ones, and those of the
    script that was started, have no module."""
    if kind.__module__ in ("builtins", *MAIN):
        return kind.__qualname__
    module = "dragoman" if kind.__module__ == DragomanError.__module__ else kind.__module__  # where users import it
    return f"{module}.{kind.__qualname__}"


def _retry_in(error: BaseException) -> float | None:
    """Return the decision of a handler about retries, as in `Failure`."""
    if isinstance(error, PermanentFailure) or getattr(error, "__dragoman_permanent__", False):
        return inf
    return error.delay if isinstance(error, Retry) else None


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the exception's own __str__ may raise
        return "(no message: __str__ of the exception failed)"


def _traceback(error: BaseException) -> str:
    """Return the traceback from the handler's own code on, without frames of this module and of tasks."""
    behind: TracebackType | None = error.__traceback__
    while behind is not None and behind.tb_next is not None and behind.tb_frame.f_globals.get("__name__") in OURS:
        behind = behind.tb_next
    return "".join(traceback.format_exception(type(error), error, behind)).rstrip("\n")
